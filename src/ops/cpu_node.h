// The one MLX primitive of the CPU bodies: a sub-layer as one node, whose body runs on the stream's thread and spreads
// its kernels over the pool. MLX keeps the input buffers alive until the body has run.
#pragma once

#include <mlx/array.h>

#include <functional>
#include <vector>

#include "ops/layers.h"
#include "ops/scratch.h"

namespace tutti::ops {

// x is the input's [T, H] values (null for a node without input), out the node's output, uninitialised.
using CpuBody = std::function<void(const float* x, float* out, Scratch& scratch)>;

struct CpuNode {
  const char* op = "";            // for error messages and the fault hook
  Step step;                      // kept alive until the body has run
  std::vector<mx::array> inputs;  // the previous x, or nothing
  mx::Shape shape;                // of the output, float32
  CpuBody body;
};
// Throws std::invalid_argument when the step lacks a kernel table.
mx::array cpu_node(CpuNode node);

// Calls f(tile, thread) over the step's pool, or in order where it has none.
inline void run_tiles(const StepContext& step, int tiles, TileFunction f) {
  if (step.pool != nullptr) return step.pool->run(tiles, f);
  for (int tile = 0; tile < tiles; ++tile) f(tile, 0);
}
inline int thread_count(const StepContext& step) {
  return step.pool != nullptr ? step.pool->threads() : 1;
}

}  // namespace tutti::ops
