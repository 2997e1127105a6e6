// Norms as plain loops, sums in double (spec/model.md 3, 6.3, 6.7). The contract is KernelTable's.
#pragma once

#include <cstdint>

namespace tutti::kernels::reference {

void rms_norm(const float* x, const float* gamma, float eps, int rows, int H, float* y) noexcept;
void gated_rms_norm(const float* o, const float* z, const float* gamma, float eps, int rows, int D, float* y) noexcept;
void l2_norm(float* x, int64_t stride, int rows, int D, float scale) noexcept;

}  // namespace tutti::kernels::reference
