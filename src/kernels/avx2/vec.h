// Vec of AVX2 with FMA and F16C: eight floats.
#pragma once

#include "kernels/target.h"

#if defined(TUTTI_KERNELS_X86)
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/bfloat16.h"

TUTTI_TARGET_AVX2_BEGIN
namespace tutti::kernels::avx2 {

// A sliding window over this gives the mask of the first n lanes: load at kFirst + 8 - n.
inline constexpr int32_t kFirst[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

struct Vec {
  static constexpr int kWidth = 8;
  static constexpr int kRegisters = 16;
  __m256 v;

  static TUTTI_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
  static TUTTI_INLINE Vec broadcast(float a) { return {_mm256_set1_ps(a)}; }
  static TUTTI_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  // Lanes >= n are zero and not read; 0 <= n <= kWidth.
  static TUTTI_INLINE Vec load_partial(const float* p, int n) { return {_mm256_maskload_ps(p, first(n))}; }
  static TUTTI_INLINE Vec load_bf16(const bf16* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  }
  TUTTI_INLINE void store(float* p) const { _mm256_storeu_ps(p, v); }
  TUTTI_INLINE void store_partial(float* p, int n) const { _mm256_maskstore_ps(p, first(n), v); }
  TUTTI_INLINE void store_bf16(bf16* p) const {  // to nearest even, NaN stays NaN
    const __m256i u = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i even = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i nan = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i r = _mm256_blendv_epi8(even, nan, is_nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static TUTTI_INLINE __m256i first(int n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFirst + 8 - n));
  }
};

TUTTI_INLINE Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.v, b.v)};
}
TUTTI_INLINE Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
TUTTI_INLINE Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
TUTTI_INLINE Vec div(Vec a, Vec b) {
  return {_mm256_div_ps(a.v, b.v)};
}
TUTTI_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}  // a * b + c
TUTTI_INLINE Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.v, b.v)};
}  // b when either is NaN
TUTTI_INLINE Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.v, b.v)};
}  // b when either is NaN
// A tree: lane i + lane i+4, then i+2, then i+1.
TUTTI_INLINE float reduce_add(Vec a) {
  const __m128 h = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 q = _mm_add_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
TUTTI_INLINE float first_lane(Vec a) {
  return _mm256_cvtss_f32(a.v);
}
TUTTI_INLINE float reduce_max(Vec a) {
  const __m128 h = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 q = _mm_max_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
TUTTI_INLINE Vec round_even(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a * 2^n for integers n in [-250, 250], in two exact factors so that the result may be subnormal or overflow.
TUTTI_INLINE Vec scale_by_power(Vec a, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
  const __m256i f = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i g = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  return {_mm256_mul_ps(_mm256_mul_ps(a.v, _mm256_castsi256_ps(f)), _mm256_castsi256_ps(g))};
}
// The same value, held in a register: a broadcast that several instructions use is not folded into each of them, where
// it would cost a load every time.
TUTTI_INLINE Vec pinned(Vec a) {
  asm("" : "+x"(a.v));
  return a;
}
struct Mask {
  __m256 m;
};
TUTTI_INLINE Mask greater(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)};
}
TUTTI_INLINE Vec select(Mask m, Vec x, Vec y) {
  return {_mm256_blendv_ps(y.v, x.v, m.m)};
}  // x where set

#include "kernels/generic/math.inl.h"

}  // namespace tutti::kernels::avx2
TUTTI_TARGET_AVX2_END
#endif
