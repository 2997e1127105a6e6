#include "ops/bodies.h"
#include "ops/checks.h"
#include "ops/cpu_linear.h"

namespace tutti::ops::cpu {
namespace {

// norm → gate, up, silu, conversion → down + x.
void run_mlp(const StepContext& step, const MlpWeights& w, const float* x, float* out, Scratch& scratch) {
  const kernels::Matrix &gate = matrix_of(w.gate), &up = matrix_of(w.up), &down = matrix_of(w.down);
  const int T = step.batch.T(), H = gate.K, I = gate.N;
  float* normed = scratch.floats(int64_t{T} * H);
  Inputs in(scratch, step, normed, T, H);
  in.want(gate);
  in.want(up);
  run_norm(step, {.x = x, .gamma = &w.norm, .eps = w.eps, .normed = normed}, in);

  float* h = scratch.floats(int64_t{T} * I);
  float* u = scratch.floats(int64_t{T} * I);
  Inputs next(scratch, step, h, T, I);
  next.want(down);
  const GatedPair pair{.gate = {.w = &gate, .in = in.of(gate), .M = T, .y = h, .y_stride = I},
                       .up = {.w = &up, .in = in.of(up), .M = T, .y = u, .y_stride = I},
                       .next = &next};
  run_gated(step, {&pair, 1});
  run_residual(step, {.w = &down, .in = next.of(down), .M = T, .y = out, .y_stride = H}, x);
}

}  // namespace

mx::array mlp(const mx::array& x, const Step& step, const MlpWeights& w) {
  auto body = [&step = *step, &w](const float* in, float* out, Scratch& scratch) {
    run_mlp(step, w, in, out, scratch);
  };
  return cpu_node({.op = "mlp", .step = step, .inputs = {x}, .shape = x.shape(), .body = std::move(body)});
}

}  // namespace tutti::ops::cpu
