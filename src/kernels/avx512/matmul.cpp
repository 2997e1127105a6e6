#include "kernels/avx512/bytes.h"

#if defined(TUTTI_KERNELS_X86)
#include <utility>

#include "kernels/avx512/int8.h"
#include "kernels/fill.h"
#include "kernels/reference/matmul.h"

TUTTI_TARGET_AVX512_BEGIN
namespace tutti::kernels::avx512 {
namespace {

#include "kernels/generic/matmul_common.inl.h"

// ---- float ----

struct Bf16Pairs {
  using Value = bf16;
  static constexpr int kPartStride = 2 * Vec::kWidth;
  static TUTTI_INLINE void load(const bf16* p, Vec& even, Vec& odd) {
    const __m512i pairs = _mm512_loadu_si512(p);
    even.v = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    odd.v = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

constexpr int kFloatRows = 8;
template <int MR>
constexpr int kFloatPanels = MR == 1   ? 8
                             : MR <= 4 ? 4
                                       : 2;

#include "kernels/generic/matmul_float.inl.h"

// ---- int8: pairs of products in 16 bits, several quads before they widen ----

// Quads whose pairs fit 16 bits: (2^bits - 1) * 127 * 2 each.
template <int kBits>
constexpr int kRun = kBits <= 4   ? 8
                     : kBits == 5 ? 4
                                  : 2;

template <int kBits>
struct Dot {
  static constexpr int kRows = 8;
  template <int MR>
  static TUTTI_INLINE void dot(const uint8_t* codes, const int8_t* const* x, int quads, Sum* sum) {
    const __m512i one = _mm512_set1_epi16(1);
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) sum[i].v = _mm512_setzero_si512();
    for (int q = 0; q < quads; q += kRun<kBits>) {
      __m512i part[MR];
      TUTTI_UNROLL for (int j = 0; j < kRun<kBits>; ++j) {
        const __m512i code = _mm512_loadu_si512(codes + (q + j) * 64);
        TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
          const __m512i product = _mm512_maddubs_epi16(code, broadcast_quad(x[i] + 4 * (q + j)));
          part[i] = j == 0 ? product : chain_add16(part[i], product);
        }
      }
      TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
        sum[i].v = _mm512_add_epi32(sum[i].v, _mm512_madd_epi16(part[i], one));
      }
    }
  }
};

// A pair of 8-bit products does not fit 16 bits: the nibbles apart, joined when they widen.
template <>
struct Dot<8> {
  static constexpr int kRows = 8;
  template <int MR>
  static TUTTI_INLINE void dot(const uint8_t* codes, const int8_t* const* x, int quads, Sum* sum) {
    const __m512i one = _mm512_set1_epi16(1), sixteen = _mm512_set1_epi16(16), nibble = _mm512_set1_epi8(15);
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) sum[i].v = _mm512_setzero_si512();
    for (int q = 0; q < quads; q += 8) {
      __m512i low[MR], high[MR];
      TUTTI_UNROLL for (int j = 0; j < 8; ++j) {
        const __m512i code = _mm512_loadu_si512(codes + (q + j) * 64);
        const __m512i code_low = _mm512_and_si512(code, nibble);
        const __m512i code_high = _mm512_and_si512(_mm512_srli_epi16(code, 4), nibble);
        TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
          const __m512i quad = broadcast_quad(x[i] + 4 * (q + j));
          const __m512i product_low = _mm512_maddubs_epi16(code_low, quad);
          const __m512i product_high = _mm512_maddubs_epi16(code_high, quad);
          low[i] = j == 0 ? product_low : chain_add16(low[i], product_low);
          high[i] = j == 0 ? product_high : chain_add16(high[i], product_high);
        }
      }
      TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
        const __m512i wide = _mm512_add_epi32(_mm512_madd_epi16(low[i], one), _mm512_madd_epi16(high[i], sixteen));
        sum[i].v = _mm512_add_epi32(sum[i].v, wide);
      }
    }
  }
};

#include "kernels/generic/matmul_int8.inl.h"

// ---- inputs ----

TUTTI_INLINE uint32_t max_magnitude(const float* x, int n) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i max = _mm512_setzero_si512();
  for (int i = 0; i < n; i += 16) max = _mm512_max_epu32(max, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
  return _mm512_reduce_max_epu32(max);
}

TUTTI_INLINE int round_int8(const float* x, int n, Vec inverse, int8_t* q) {
  __m512i total = _mm512_setzero_si512();
  for (int i = 0; i < n; i += 16) {
    const __m512i r = _mm512_cvtps_epi32(mul(Vec::load(x + i), inverse).v);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + i), _mm512_cvtepi32_epi8(r));
    total = _mm512_add_epi32(total, r);
  }
  return _mm512_reduce_add_epi32(total);
}

#include "kernels/generic/quantize.inl.h"

}  // namespace

void matmul_affine_int8_pairs(const MatmulArgs& args) noexcept {
  matmul_affine_int8(args);
}

void fill_matmul(KernelTable& table) noexcept {
  table.round_bf16 = round_bf16;
  table.quantize_int8 = quantize_int8;
  table.matmul_float = matmul_float;
  table.matmul_affine_int8 = has_vnni() ? matmul_affine_int8_vnni : matmul_affine_int8_pairs;
  table.matmul_affine_float = matmul_affine_float;
  table.read_row = reference::read_row;
}

}  // namespace tutti::kernels::avx512
TUTTI_TARGET_AVX512_END
#endif
