#include <algorithm>
#include <limits>

#include "ops/bodies.h"
#include "ops/checks.h"
#include "ops/cpu_linear.h"

namespace tutti::ops::cpu {
namespace {

// The rows that want logits → final norm → product; ids that don't exist become -inf.
void run_head(const StepContext& step, const HeadWeights& w, const float* x, float* out, Scratch& scratch) {
  const kernels::Matrix& m = matrix_of(*w.head);
  const int L = step.batch.L(), H = m.K, V = m.N;
  if (L == 0) return;
  float* normed = scratch.floats(int64_t{L} * H);
  Inputs in(scratch, step, normed, L, H);
  in.want(m);
  run_norm(step, {.x = x, .rows = step.batch.logits_of.data(), .gamma = &w.norm, .eps = w.eps, .normed = normed}, in);

  const Product product{.w = &m, .in = in.of(m), .M = L, .y = out, .y_stride = V};
  const Tiling tiling({&product, 1}, thread_count(step));
  run_tiles(step, tiling.count(), [&](int index, int) {
    const Tile tile = tiling.at(index);
    multiply(*step.table, product, tile);
    const int begin = std::max(tile.col_begin(), w.vocab), end = std::min(V, tile.panel_end * kernels::kPanel);
    for (int row = tile.row_begin; begin < end && row < tile.row_end; ++row) {
      float* y = out + int64_t{row} * V;
      std::fill(y + begin, y + end, -std::numeric_limits<float>::infinity());
    }
  });
}

}  // namespace

mx::array head(const mx::array& x, const Step& step, const HeadWeights& w) {
  const int L = step->batch.L(), V = matrix_of(*w.head).N;
  auto body = [&step = *step, &w](const float* in, float* out, Scratch& scratch) {
    run_head(step, w, in, out, scratch);
  };
  return cpu_node({.op = "head", .step = step, .inputs = {x}, .shape = {L, V}, .body = std::move(body)});
}

}  // namespace tutti::ops::cpu
