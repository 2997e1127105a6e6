#include "ops/bodies.h"
#include "ops/checks.h"

namespace tutti::ops {

mx::array mlp(const mx::array& x, const Step& step, const MlpWeights& w) {
  const int I = out_features(w.gate), H = in_features(w.gate);
  require_x("mlp", x, step->batch, H);
  require_vector("mlp", "norm", w.norm, H);
  const bool packed = require_weights("mlp", {{"gate", &w.gate, I, H}, {"up", &w.up, I, H}, {"down", &w.down, H, I}});
  return packed ? cpu::mlp(x, step, w) : graph::mlp(x, step, w);
}

}  // namespace tutti::ops
