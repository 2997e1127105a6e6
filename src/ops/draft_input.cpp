#include "ops/bodies.h"
#include "ops/checks.h"

namespace tutti::ops {

mx::array draft_input(const mx::array& hidden, const Step& step, const DraftInputWeights& w) {
  const int H = static_cast<int>(w.hidden_norm.values.size());
  check_batch("draft_input", step->batch);
  require_x("draft_input", hidden, step->batch, H);
  require(w.table != nullptr && static_cast<int>(w.embedding_norm.values.size()) == H, "draft_input",
          "the two norms differ in width");
  const int V = out_features(*w.table);
  const bool packed = require_weights("draft_input", {{"fc", &w.fc, H, 2 * H}, {"table", w.table, V, H}});
  for (const int32_t token : step->batch.tokens) {
    if (token < 0 || token >= V)
      reject("draft_input", "token " + std::to_string(token) + " is outside the " + std::to_string(V) + " rows");
  }
  return packed ? cpu::draft_input(hidden, step, w) : graph::draft_input(hidden, step, w);
}

mx::array norm(const mx::array& x, const Step& step, const Vector& gamma, float eps) {
  require_x("norm", x, step->batch, static_cast<int>(gamma.values.size()));
  return step->numerics.body == Body::cpu ? cpu::norm(x, step, gamma, eps) : graph::norm(x, step, gamma, eps);
}

}  // namespace tutti::ops
