// The two bodies of matmul_affine_int8: 16-bit pairs, or the dot products of AVX-VNNI. Their results are equal to the
// bit.
#pragma once

#include "kernels/table.h"

namespace tutti::kernels::avx2 {

void matmul_affine_int8_pairs(const MatmulArgs& args) noexcept;
void matmul_affine_int8_vnni(const MatmulArgs& args) noexcept;  // only where has_vnni()
bool has_vnni() noexcept;

}  // namespace tutti::kernels::avx2
