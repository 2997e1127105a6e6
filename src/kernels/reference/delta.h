// The gated delta rule as plain loops (spec/model.md 6.3, 6.4). The contract is KernelTable's.
#pragma once

#include "kernels/table.h"

namespace tutti::kernels::reference {

void conv_silu(const float* u, int64_t u_stride, int n, int C, const float* w, float* window, float* y, int begin,
               int end) noexcept;
void delta_gates(const float* a, const float* b, const float* A_log, const float* dt_bias, int Hv, float* decay,
                 float* beta) noexcept;
// Sums in double, the state rounded to float32 at every token.
void delta_rule(const DeltaArgs& args) noexcept;

}  // namespace tutti::kernels::reference
