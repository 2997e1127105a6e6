#include <mlx/ops.h>

#include "ops/bodies.h"
#include "ops/graph_ops.h"

namespace tutti::ops::graph {

mx::array draft_input(const mx::array& hidden, const Step& step, const DraftInputWeights& w) {
  const auto embedding = embed(step, std::get<GraphWeight>(*w.table));
  return linear(mx::concatenate({rms(embedding, w.embedding_norm, w.eps), rms(hidden, w.hidden_norm, w.eps)}, 1), w.fc);
}

mx::array norm(const mx::array& x, const Step&, const Vector& gamma, float eps) {
  return rms(x, gamma, eps);
}

}  // namespace tutti::ops::graph
