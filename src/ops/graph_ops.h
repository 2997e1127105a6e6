// What the graph bodies share: plain MLX operations in float32, weights as stored. On the CPU, MLX's own quantised
// product accumulates in bfloat16 on some processors, so weights are dequantised in float32 and multiplied in float32.
#pragma once

#include "ops/layers.h"

namespace tutti::ops::graph {

// [N, K] or [E, N, K] float32.
mx::array dense(const GraphWeight& w);
// x [..., K] · wᵀ → [..., N].
mx::array linear(const mx::array& x, const Weight& w);
// x * rsqrt(mean(x²) + eps) * gamma over the last axis; gamma null: without it.
mx::array rms(const mx::array& x, const Vector& gamma, float eps);
mx::array silu(const mx::array& x);
mx::array int_array(const std::vector<int32_t>& values);
// Rows [begin, end) of the first axis.
mx::array rows(const mx::array& x, int begin, int end);

}  // namespace tutti::ops::graph
