#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>

#include "base/bfloat16.h"

namespace tutti::kernels::reference {
namespace {

int64_t k_index(const KvLayer& kv, int32_t block, int g, int slot, int d) {
  return ((static_cast<int64_t>(block) * kv.G + g) * kv.D + d) * kBlockTokens + slot;
}

int64_t v_index(const KvLayer& kv, int32_t block, int g, int slot, int d) {
  return ((static_cast<int64_t>(block) * kv.G + g) * kBlockTokens + slot) * kv.D + d;
}

float get(const KvLayer& kv, const void* base, int64_t i) {
  return kv.type == KvType::bfloat16 ? bf16_to_float(static_cast<const bf16*>(base)[i])
                                     : static_cast<const float*>(base)[i];
}

void put(const KvLayer& kv, void* base, int64_t i, float x) {
  if (kv.type == KvType::bfloat16) {
    static_cast<bf16*>(base)[i] = float_to_bf16(x);
  } else {
    static_cast<float*>(base)[i] = x;
  }
}

double score(const AttentionArgs& args, const float* q, int g, int key) {
  const int32_t block = args.blocks[key / kBlockTokens];
  double sum = 0;
  for (int d = 0; d < args.kv.D; ++d) {
    sum += static_cast<double>(q[d]) * get(args.kv, args.kv.k, k_index(args.kv, block, g, key % kBlockTokens, d));
  }
  return sum * args.scale;
}

}  // namespace

void rope(float* x, int64_t head_stride, int heads, const float* cos, const float* sin, int half) noexcept {
  for (int h = 0; h < heads; ++h, x += head_stride) {
    for (int i = 0; i < half; ++i) {
      const double a = x[i], b = x[half + i];
      x[i] = static_cast<float>(a * cos[i] - b * sin[i]);
      x[half + i] = static_cast<float>(b * cos[i] + a * sin[i]);
    }
  }
}

void kv_write(const KvLayer& kv, const int32_t* blocks, int position, const float* k, const float* v) noexcept {
  const int32_t block = blocks[position / kBlockTokens];
  const int slot = position % kBlockTokens;
  for (int g = 0; g < kv.G; ++g) {
    for (int d = 0; d < kv.D; ++d) {
      put(kv, kv.k, k_index(kv, block, g, slot, d), k[g * kv.D + d]);
      put(kv, kv.v, v_index(kv, block, g, slot, d), v[g * kv.D + d]);
    }
  }
}

void attention_range(const AttentionArgs& args, int q_begin, int q_end, int g, int range, const AttentionPartial& out,
                     float*) noexcept {
  const int heads = args.H / args.kv.G, D = args.kv.D, begin = range * kRangeTokens;
  int row = 0;
  for (int query = q_begin; query < q_end; ++query) {
    const int end = std::min(begin + kRangeTokens, args.first + query + 1);
    for (int h = 0; h < heads; ++h, ++row) {
      const float* q = args.q + (static_cast<int64_t>(query) * args.H + g * heads + h) * D;
      double scores[kRangeTokens];
      double m = -INFINITY, l = 0;
      for (int key = begin; key < end; ++key) m = std::max(m, scores[key - begin] = score(args, q, g, key));
      for (int key = begin; key < end; ++key) l += scores[key - begin] = std::exp(scores[key - begin] - m);
      out.m[row] = static_cast<float>(m);
      out.l[row] = static_cast<float>(l);
      for (int d = 0; d < D; ++d) {
        double sum = 0;
        for (int key = begin; key < end; ++key) {
          const int32_t block = args.blocks[key / kBlockTokens];
          sum += scores[key - begin] * get(args.kv, args.kv.v, v_index(args.kv, block, g, key % kBlockTokens, d));
        }
        out.o[static_cast<int64_t>(row) * D + d] = static_cast<float>(sum);
      }
    }
  }
}

void attention_merge(const AttentionPartial& total, const AttentionPartial& part, int rows, int D) noexcept {
  for (int r = 0; r < rows; ++r) {
    const double a = total.m[r], b = part.m[r];
    if (b == -INFINITY) continue;
    const double m = std::max(a, b), keep = std::exp(a - m), take = std::exp(b - m);
    const bool empty = a == -INFINITY;  // l and o of an empty total hold nothing
    total.m[r] = static_cast<float>(m);
    total.l[r] = static_cast<float>((empty ? 0 : total.l[r] * keep) + part.l[r] * take);
    for (int d = 0; d < D; ++d) {
      float& o = total.o[static_cast<int64_t>(r) * D + d];
      o = static_cast<float>((empty ? 0 : o * keep) + part.o[static_cast<int64_t>(r) * D + d] * take);
    }
  }
}

}  // namespace tutti::kernels::reference
