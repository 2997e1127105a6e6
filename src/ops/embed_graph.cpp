#include <mlx/ops.h>

#include "ops/bodies.h"
#include "ops/graph_ops.h"

namespace tutti::ops::graph {

mx::array embed(const Step& step, const GraphWeight& table) {
  const auto ids = int_array(step->batch.tokens);
  GraphWeight picked{mx::take(table.w, ids, 0), std::nullopt, std::nullopt, table.format};
  if (table.scales) picked.scales = mx::take(*table.scales, ids, 0);
  if (table.biases) picked.biases = mx::take(*table.biases, ids, 0);
  return dense(picked);
}

}  // namespace tutti::ops::graph
