// The two bodies of matmul_affine_int8: plain products, or the dot products of Armv8.2. Their results are equal to the
// bit.
#pragma once

#include "kernels/table.h"

namespace tutti::kernels::neon {

void matmul_affine_int8_products(const MatmulArgs& args) noexcept;
void matmul_affine_int8_dot(const MatmulArgs& args) noexcept;  // only where has_dot()
bool has_dot() noexcept;

}  // namespace tutti::kernels::neon
