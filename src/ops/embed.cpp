#include "ops/bodies.h"
#include "ops/checks.h"

namespace tutti::ops {

mx::array embed(const Step& step, const Weight& table, int hidden) {
  const StepBatch& batch = step->batch;
  check_batch("embed", batch);
  const int V = out_features(table);
  const bool packed = require_weights("embed", {{"table", &table, V, hidden}});
  for (const int32_t token : batch.tokens) {
    if (token < 0 || token >= V) {
      reject("embed", "token " + std::to_string(token) + " is outside the " + std::to_string(V) + " rows");
    }
  }
  return packed ? cpu::embed(step, std::get<PackedWeight>(table)) : graph::embed(step, std::get<GraphWeight>(table));
}

}  // namespace tutti::ops
