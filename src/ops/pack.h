// Weights from the rows of a file: packed for our kernels, or as MLX arrays in the stored type.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "ops/weight.h"

namespace tutti::ops {

// One matrix [N, K], or the E matrices of an experts module; all of one format and type.
struct WeightSource {
  quant::WeightFormat format;
  int N = 0, K = 0;
  std::vector<kernels::SourceMatrix> matrices;
  bool stacked = false;  // experts: the array keeps a leading axis, also when it is 1
};

// Reads the source once, panel by panel, in parallel (pool null: in order). Holds nothing beside the result.
PackedWeight pack(const WeightSource& source, ThreadPool* pool);
// Copies the source as it is stored.
GraphWeight as_arrays(const WeightSource& source);
int64_t weight_bytes(const Weight& w);

}  // namespace tutti::ops
