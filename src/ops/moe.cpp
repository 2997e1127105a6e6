#include "ops/bodies.h"
#include "ops/checks.h"

namespace tutti::ops {

mx::array moe(const mx::array& x, const Step& step, const MoeWeights& w) {
  constexpr const char* kOp = "moe";
  const int H = in_features(w.router), E = w.experts, I = out_features(w.gate), S = out_features(w.shared_gate);
  require(w.top_k > 0 && w.top_k <= E, kOp, "top_k is not within the experts");
  require_x(kOp, x, step->batch, H);
  require_vector(kOp, "norm", w.norm, H);
  const bool packed = require_weights(kOp, {{"router", &w.router, E, H},
                                            {"gate", &w.gate, I, H, E},
                                            {"up", &w.up, I, H, E},
                                            {"down", &w.down, H, I, E},
                                            {"shared_gate", &w.shared_gate, S, H},
                                            {"shared_up", &w.shared_up, S, H},
                                            {"shared_down", &w.shared_down, H, S},
                                            {"shared_expert_gate", &w.shared_expert_gate, 1, H}});
  return packed ? cpu::moe(x, step, w) : graph::moe(x, step, w);
}

}  // namespace tutti::ops
