// Elementwise functions as plain loops (spec/model.md 4, 7). The contract is KernelTable's.
#pragma once

#include <cmath>
#include <cstdint>

namespace tutti::kernels::reference {

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

void silu_mul(const float* gate, const float* up, int64_t n, float* y) noexcept;
void sigmoid_mul(const float* x, const float* gate, int64_t n, float* y) noexcept;
void add_scaled(const float* x, float a, int64_t n, float* y) noexcept;

}  // namespace tutti::kernels::reference
