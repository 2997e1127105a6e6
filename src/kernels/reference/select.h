// The router's choice and reductions over logits as plain loops (spec/model.md 8). The contract is KernelTable's.
#pragma once

#include <cstdint>

namespace tutti::kernels::reference {

// Chosen by logits, which is the order of the softmax without the ties that its rounding makes.
void top_k_softmax(const float* logits, int E, int k, int32_t* index, float* weight) noexcept;
int argmax(const float* x, int V) noexcept;
float log_sum_exp(const float* x, int V) noexcept;

}  // namespace tutti::kernels::reference
