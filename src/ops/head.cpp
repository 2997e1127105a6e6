#include "ops/bodies.h"
#include "ops/checks.h"

namespace tutti::ops {

mx::array head(const mx::array& x, const Step& step, const HeadWeights& w) {
  const int H = static_cast<int>(w.norm.values.size());
  require(w.head != nullptr, "head", "no weight");
  check_batch("head", step->batch);
  require_x("head", x, step->batch, H);
  const int V = out_features(*w.head);
  require(w.vocab > 0 && w.vocab <= V, "head", "vocab is not within the rows of the weight");
  const bool packed = require_weights("head", {{"head", w.head, V, H}});
  return packed ? cpu::head(x, step, w) : graph::head(x, step, w);
}

}  // namespace tutti::ops
