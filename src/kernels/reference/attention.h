// Rotary embedding and paged attention as plain loops (spec/model.md 4). The contract is KernelTable's.
#pragma once

#include "kernels/table.h"

namespace tutti::kernels::reference {

void rope(float* x, int64_t head_stride, int heads, const float* cos, const float* sin, int half) noexcept;
void kv_write(const KvLayer& kv, const int32_t* blocks, int position, const float* k, const float* v) noexcept;
// The scores of the range first, then their maximum, then the sums, all in double: no tree is needed here.
void attention_range(const AttentionArgs& args, int q_begin, int q_end, int g, int range, const AttentionPartial& out,
                     float* scratch) noexcept;
void attention_merge(const AttentionPartial& total, const AttentionPartial& part, int rows, int D) noexcept;

}  // namespace tutti::kernels::reference
