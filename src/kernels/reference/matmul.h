// The rules of the matrix products, as plain loops. What every instruction set must give:
//
//   quantize_int8       exactly these bits
//   matmul_affine_int8  exactly these bits
//   round_bf16, read_row exactly these bits
//   matmul_float, matmul_affine_float
//                       this order over K with one accumulator per output; the same bits where the ISA has a fused
//                       multiply-add (scalar rounds the product too)
#pragma once

#include "kernels/table.h"

namespace tutti::kernels::reference {

void round_bf16(const float* x, int64_t n, float* y) noexcept;

// Per group: scale = max|x| / 127, q = x * (127 / max|x|) rounded half to even, sum = scale * Σ q.
// A group whose max|x| is below kSmallestGroup is zero (127 / max would overflow). A group with an infinity or a NaN
// has q = 0 and NaN for scale and sum, so that the fault shows in the outputs of its row and nowhere else.
inline constexpr float kSmallestGroup = 1e-30f;
void quantize_int8(const float* x, int M, int K, int group, int8_t* q, float* scale, float* sum) noexcept;

// acc = 0; for k: acc = fma(x[k], w[n][k], acc).
void matmul_float(const MatmulArgs& args) noexcept;

// acc = 0; for each group g:
//   dot = Σ code * q, exact in int32
//   acc = fma(float(dot) * w_scale[n][g], x_scale[g], acc)   (the product float(dot) * w_scale is rounded)
//   acc = fma(w_bias[n][g], x_sum[g], acc)
void matmul_affine_int8(const MatmulArgs& args) noexcept;

// matmul_float over the values w_scale * code + w_bias (one multiply, one add, both rounded).
void matmul_affine_float(const MatmulArgs& args) noexcept;

void read_row(const Matrix& w, int n, float* out) noexcept;

}  // namespace tutti::kernels::reference
