#include <mlx/ops.h>

#include <limits>

#include "ops/bodies.h"
#include "ops/graph_ops.h"

namespace tutti::ops::graph {

mx::array head(const mx::array& x, const Step& step, const HeadWeights& w) {
  const int V = out_features(*w.head);
  if (step->batch.L() == 0) return mx::zeros({0, V}, mx::float32);
  const auto wanted = mx::take(x, int_array(step->batch.logits_of), 0);
  const auto logits = linear(rms(wanted, w.norm, w.eps), *w.head);
  if (w.vocab == V) return logits;
  const auto exists = mx::less(mx::arange(V, mx::int32), mx::array(w.vocab));
  return mx::where(exists, logits, mx::array(-std::numeric_limits<float>::infinity()));
}

}  // namespace tutti::ops::graph
