#include "ops/bodies.h"
#include "ops/checks.h"

namespace tutti::ops {

mx::array gated_delta(const mx::array& x, const Step& step, const DeltaWeights& w, StateView cache) {
  constexpr const char* kOp = "gated_delta";
  const int H = in_features(w.qkv), Hk = w.key_heads, Hv = w.value_heads, Dk = w.key_dim, Dv = w.value_dim;
  const int C = 2 * Hk * Dk + Hv * Dv;
  check_batch(kOp, step->batch);
  require(Hk > 0 && Hv % Hk == 0, kOp, "value_heads are no multiple of key_heads");
  require_x(kOp, x, step->batch, H);
  require_vector(kOp, "input_norm", w.input_norm, H);
  require_vector(kOp, "conv", w.conv, 4 * C);
  require_vector(kOp, "A_log", w.A_log, Hv);
  require_vector(kOp, "dt_bias", w.dt_bias, Hv);
  require_vector(kOp, "norm", w.norm, Dv);
  const bool packed = require_weights(kOp, {{"qkv", &w.qkv, C, H},
                                            {"z", &w.z, Hv * Dv, H},
                                            {"a", &w.a, Hv, H},
                                            {"b", &w.b, Hv, H},
                                            {"out", &w.out, H, Hv * Dv}});
  require(packed == std::holds_alternative<CpuState>(cache), kOp, "the cache belongs to the other kind of body");
  if (!packed) {
    const auto& state = std::get<GraphState>(cache);
    require(state.state != nullptr && state.state->ndim() == 4 && state.state->shape(1) == Hv &&
                state.state->shape(2) == Dk && state.state->shape(3) == Dv,
            kOp, "the state has another shape");
    require(state.conv != nullptr && state.conv->ndim() == 3 && state.conv->shape(2) == C, kOp,
            "the convolution window has another shape");
    return graph::gated_delta(x, step, w, state);
  }
  const auto& state = std::get<CpuState>(cache);
  require(state.state != nullptr && state.conv != nullptr, kOp, "no state");
  require(Dv % 16 == 0 && Dk % 16 == 0, kOp, "a head's key or value dim is no multiple of 16");
  return cpu::gated_delta(x, step, w, state);
}

}  // namespace tutti::ops
