#include <mlx/ops.h>

#include "ops/bodies.h"
#include "ops/graph_ops.h"

namespace tutti::ops::graph {
namespace {

// x [T, k or 1, 1, K] times the chosen experts' matrices → [T, k, 1, N].
mx::array chosen(const mx::array& x, const Weight& w, const mx::array& experts) {
  return mx::gather_mm(x, mx::swapaxes(dense(std::get<GraphWeight>(w)), -1, -2), std::nullopt, experts);
}

}  // namespace

mx::array moe(const mx::array& x, const Step&, const MoeWeights& w) {
  const int T = x.shape(0), H = x.shape(1);
  const auto n = rms(x, w.norm, w.eps);
  const auto p = mx::softmax(linear(n, w.router), -1, true);
  // A stable sort: ties go to the lower index.
  const auto experts = mx::slice(mx::argsort(-p, -1), {0, 0}, {T, w.top_k});
  auto weights = mx::take_along_axis(p, experts, -1);
  weights = weights / mx::sum(weights, -1, true);

  const auto in = mx::reshape(n, {T, 1, 1, H});
  const auto h = silu(chosen(in, w.gate, experts)) * chosen(in, w.up, experts);
  const auto out = mx::reshape(chosen(h, w.down, experts), {T, w.top_k, H});
  const auto routed = mx::sum(out * mx::expand_dims(weights, -1), 1);
  const auto shared = linear(silu(linear(n, w.shared_gate)) * linear(n, w.shared_up), w.shared_down);
  return x + routed + mx::sigmoid(linear(n, w.shared_expert_gate)) * shared;
}

}  // namespace tutti::ops::graph
