// A weight as one body holds it: packed for our kernels, or as MLX arrays. Never both (memory).
#pragma once

#include <mlx/array.h>

#include <optional>
#include <variant>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/matrix.h"

namespace tutti::ops {
namespace mx = mlx::core;

// A matrix (or E expert matrices of one shape) in the kernels' order.
struct PackedWeight {
  std::vector<kernels::Matrix> experts;  // one entry for a plain linear
  AlignedBuffer memory;                  // what the entries point into

  const kernels::Matrix& matrix() const { return experts.front(); }
};

// The same as arrays. Plain: w [N, K] (or [E, N, K]) in the stored dtype. Affine: w uint32 codes, scales and biases.
struct GraphWeight {
  mx::array w;
  std::optional<mx::array> scales, biases;
  quant::WeightFormat format;
};

using Weight = std::variant<PackedWeight, GraphWeight>;

// A vector parameter (norm gamma, A_log, dt_bias, conv taps), always float32.
struct Vector {
  std::vector<float> values;
  mx::array array;  // the same values, [n] or the shape that the op states
};
Vector make_vector(std::vector<float> values, mx::Shape shape);

// Output features (rows of one matrix) and input features.
int out_features(const Weight& w);
int in_features(const Weight& w);
int expert_count(const Weight& w);  // 1 for a plain linear
bool is_packed(const Weight& w);    // the CPU bodies take packed weights, the graph bodies the other kind

}  // namespace tutti::ops
