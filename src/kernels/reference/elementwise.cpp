#include "kernels/reference/elementwise.h"

namespace tutti::kernels::reference {

void silu_mul(const float* gate, const float* up, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(gate[i] * sigmoid(gate[i]) * up[i]);
}

void sigmoid_mul(const float* x, const float* gate, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * sigmoid(gate[i]));
}

void add_scaled(const float* x, float a, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(y[i] + static_cast<double>(x[i]) * a);
}

}  // namespace tutti::kernels::reference
