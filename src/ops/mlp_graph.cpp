#include <mlx/ops.h>

#include "ops/bodies.h"
#include "ops/graph_ops.h"

namespace tutti::ops::graph {

mx::array mlp(const mx::array& x, const Step&, const MlpWeights& w) {
  const auto n = rms(x, w.norm, w.eps);
  return x + linear(silu(linear(n, w.gate)) * linear(n, w.up), w.down);
}

}  // namespace tutti::ops::graph
