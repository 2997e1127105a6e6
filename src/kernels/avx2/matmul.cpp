#include "kernels/avx2/bytes.h"

#if defined(TUTTI_KERNELS_X86)
#include <utility>

#include "kernels/avx2/int8.h"
#include "kernels/fill.h"
#include "kernels/reference/matmul.h"

TUTTI_TARGET_AVX2_BEGIN
namespace tutti::kernels::avx2 {
namespace {

#include "kernels/generic/matmul_common.inl.h"

// ---- float ----

struct Bf16Pairs {
  using Value = bf16;
  static constexpr int kPartStride = 2 * Vec::kWidth;
  static TUTTI_INLINE void load(const bf16* p, Vec& even, Vec& odd) {
    const __m256i pairs = load_bytes(p);
    even.v = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    odd.v = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

constexpr int kFloatRows = 4;
template <int MR>
constexpr int kFloatPanels = MR == 1   ? 4
                             : MR == 2 ? 2
                                       : 1;

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
    const __m256i one = _mm256_set1_epi16(1);
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) sum[i].v = _mm256_setzero_si256();
    for (int q = 0; q < quads; q += kRun<kBits>) {
      __m256i part[MR];
      TUTTI_UNROLL for (int j = 0; j < kRun<kBits>; ++j) {
        const __m256i code = load_bytes(codes + (q + j) * 64);
        TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
          const __m256i product = _mm256_maddubs_epi16(code, broadcast_quad(x[i] + 4 * (q + j)));
          part[i] = j == 0 ? product : chain_add16(part[i], product);
        }
      }
      TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
        sum[i].v = _mm256_add_epi32(sum[i].v, _mm256_madd_epi16(part[i], one));
      }
    }
  }
};

// A pair of 8-bit products does not fit 16 bits: the nibbles apart, joined when they widen.
template <>
struct Dot<8> {
  static constexpr int kRows = 4;
  template <int MR>
  static TUTTI_INLINE void dot(const uint8_t* codes, const int8_t* const* x, int quads, Sum* sum) {
    const __m256i one = _mm256_set1_epi16(1), sixteen = _mm256_set1_epi16(16), nibble = _mm256_set1_epi8(15);
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) sum[i].v = _mm256_setzero_si256();
    for (int q = 0; q < quads; q += 8) {
      __m256i low[MR], high[MR];
      TUTTI_UNROLL for (int j = 0; j < 8; ++j) {
        const __m256i code = load_bytes(codes + (q + j) * 64);
        const __m256i code_low = _mm256_and_si256(code, nibble);
        const __m256i code_high = _mm256_and_si256(_mm256_srli_epi16(code, 4), nibble);
        TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
          const __m256i quad = broadcast_quad(x[i] + 4 * (q + j));
          const __m256i product_low = _mm256_maddubs_epi16(code_low, quad);
          const __m256i product_high = _mm256_maddubs_epi16(code_high, quad);
          low[i] = j == 0 ? product_low : chain_add16(low[i], product_low);
          high[i] = j == 0 ? product_high : chain_add16(high[i], product_high);
        }
      }
      TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
        const __m256i wide = _mm256_add_epi32(_mm256_madd_epi16(low[i], one), _mm256_madd_epi16(high[i], sixteen));
        sum[i].v = _mm256_add_epi32(sum[i].v, wide);
      }
    }
  }
};

#include "kernels/generic/matmul_int8.inl.h"

// ---- inputs ----

TUTTI_INLINE uint32_t max_magnitude(const float* x, int n) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i max = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 8) max = _mm256_max_epu32(max, _mm256_and_si256(load_bytes(x + i), magnitude));
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

TUTTI_INLINE int round_int8(const float* x, int n, Vec inverse, int8_t* q) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // undoes the lanes of the two packs
  __m256i total = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 32) {
    __m256i r[4];
    TUTTI_UNROLL for (int j = 0; j < 4; ++j) {
      r[j] = _mm256_cvtps_epi32(mul(Vec::load(x + i + 8 * j), inverse).v);
      total = _mm256_add_epi32(total, r[j]);
    }
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + i), _mm256_permutevar8x32_epi32(bytes, order));
  }
  __m128i t = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1));
  return _mm_cvtsi128_si32(t);
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

}  // namespace tutti::kernels::avx2
TUTTI_TARGET_AVX2_END
#endif
