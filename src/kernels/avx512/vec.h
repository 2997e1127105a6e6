// Vec of AVX-512 F, BW, VL, DQ: sixteen floats.
#pragma once

#include "kernels/target.h"

#if defined(TUTTI_KERNELS_X86)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns of its own _mm512_undefined_ps
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/bfloat16.h"

TUTTI_TARGET_AVX512_BEGIN
namespace tutti::kernels::avx512 {

struct Vec {
  static constexpr int kWidth = 16;
  static constexpr int kRegisters = 32;
  __m512 v;

  static TUTTI_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
  static TUTTI_INLINE Vec broadcast(float a) { return {_mm512_set1_ps(a)}; }
  static TUTTI_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  // Lanes >= n are zero and not read; 0 <= n <= kWidth.
  static TUTTI_INLINE Vec load_partial(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  static TUTTI_INLINE Vec load_bf16(const bf16* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  TUTTI_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
  TUTTI_INLINE void store_partial(float* p, int n) const { _mm512_mask_storeu_ps(p, first(n), v); }
  TUTTI_INLINE void store_bf16(bf16* p) const {  // to nearest even, NaN stays NaN
    const __m512i u = _mm512_castps_si512(v);
    const __m512i high = _mm512_srli_epi32(u, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i even = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i r = _mm512_mask_or_epi32(even, is_nan, high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(r));
  }
  static TUTTI_INLINE __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
};

TUTTI_INLINE Vec add(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
TUTTI_INLINE Vec sub(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
TUTTI_INLINE Vec mul(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
TUTTI_INLINE Vec div(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
TUTTI_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}  // a * b + c
TUTTI_INLINE Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}  // b when either is NaN
TUTTI_INLINE Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}  // b when either is NaN
// A tree: lane i + lane i+8, then i+4, i+2, i+1.
TUTTI_INLINE float reduce_add(Vec a) {
  const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 h = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 q = _mm_add_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
TUTTI_INLINE float first_lane(Vec a) {
  return _mm512_cvtss_f32(a.v);
}
TUTTI_INLINE float reduce_max(Vec a) {
  const __m256 e = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 h = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 q = _mm_max_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
TUTTI_INLINE Vec round_even(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a * 2^n for integers n; the result may be subnormal or overflow.
TUTTI_INLINE Vec scale_by_power(Vec a, Vec n) {
  return {_mm512_scalef_ps(a.v, n.v)};
}
// The same value, held in a register: a broadcast that several instructions use is not folded into each of them, where
// it would cost a load every time.
TUTTI_INLINE Vec pinned(Vec a) {
  asm("" : "+v"(a.v));
  return a;
}
struct Mask {
  __mmask16 m;
};
TUTTI_INLINE Mask greater(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)};
}
TUTTI_INLINE Vec select(Mask m, Vec x, Vec y) {
  return {_mm512_mask_blend_ps(m.m, y.v, x.v)};
}  // x where set

#include "kernels/generic/math.inl.h"

}  // namespace tutti::kernels::avx512
TUTTI_TARGET_AVX512_END
#endif
