// The values of float tensors, whatever their stored dtype.
#pragma once

#include <cstdint>
#include <vector>

#include "weights/checkpoint.h"

namespace tutti::weights {

// float32, float16 or bfloat16.
bool is_float(DType dtype);
int64_t float_bytes(DType dtype);

// Both need a float tensor. Widening is exact.
std::vector<float> to_float(const Tensor& tensor);
// Index of the first NaN or infinity; tensor.size() when there is none.
int64_t first_non_finite(const Tensor& tensor);

}  // namespace tutti::weights
