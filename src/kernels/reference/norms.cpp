#include "kernels/reference/norms.h"

#include <cmath>

#include "kernels/reference/elementwise.h"

namespace tutti::kernels::reference {
namespace {

double sum_of_squares(const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace

void rms_norm(const float* x, const float* gamma, float eps, int rows, int H, float* y) noexcept {
  for (int r = 0; r < rows; ++r, x += H, y += H) {
    const double factor = 1 / std::sqrt(sum_of_squares(x, H) / H + eps);
    for (int i = 0; i < H; ++i) y[i] = static_cast<float>(x[i] * factor * gamma[i]);
  }
}

void gated_rms_norm(const float* o, const float* z, const float* gamma, float eps, int rows, int D, float* y) noexcept {
  for (int r = 0; r < rows; ++r, o += D, z += D, y += D) {
    const double factor = 1 / std::sqrt(sum_of_squares(o, D) / D + eps);
    for (int i = 0; i < D; ++i) y[i] = static_cast<float>(o[i] * factor * gamma[i] * z[i] * sigmoid(z[i]));
  }
}

void l2_norm(float* x, int64_t stride, int rows, int D, float scale) noexcept {
  for (int r = 0; r < rows; ++r, x += stride) {
    const double factor = scale / std::sqrt(sum_of_squares(x, D) + 1e-6);
    for (int i = 0; i < D; ++i) x[i] = static_cast<float>(x[i] * factor);
  }
}

}  // namespace tutti::kernels::reference
