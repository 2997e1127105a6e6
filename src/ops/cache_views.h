// What an op sees of the caches of its layer. Memory belongs to cache/*_store: CPU bodies write it in place, graph
// bodies move the arrays through the step.
#pragma once

#include <mlx/array.h>

#include <variant>

#include "kernels/table.h"

namespace tutti::ops {
namespace mx = mlx::core;

struct GraphKv {
  mx::array* k = nullptr;  // [blocks, 64, G, D], float32 or bfloat16
  mx::array* v = nullptr;  // [blocks, 64, G, D]
};
using KvView = std::variant<kernels::KvLayer, GraphKv>;

struct CpuState {
  float* state = nullptr;  // [slots, Hv, Dv/16, Dk, 16]
  float* conv = nullptr;   // [slots, 3, C], oldest first
};
struct GraphState {
  mx::array* state = nullptr;  // [slots, Hv, Dk, Dv] float32
  mx::array* conv = nullptr;   // [slots, 3, C] float32
};
using StateView = std::variant<CpuState, GraphState>;

}  // namespace tutti::ops
