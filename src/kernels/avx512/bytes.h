// Integers of AVX-512 for the matrix products (generic/matmul_common.inl.h, generic/matmul_int8.inl.h).
#pragma once

#include "kernels/avx512/vec.h"

#if defined(TUTTI_KERNELS_X86)
TUTTI_TARGET_AVX512_BEGIN
namespace tutti::kernels::avx512 {

struct Bytes {
  static constexpr int kSize = 64;
  __m512i v;

  static TUTTI_INLINE Bytes load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  static TUTTI_INLINE Bytes fill(int byte) { return {_mm512_set1_epi8(static_cast<char>(byte))}; }
  TUTTI_INLINE void store(uint8_t* p) const { _mm512_storeu_si512(p, v); }
  template <int s>
  TUTTI_INLINE Bytes shift_right() const {
    if constexpr (s == 0) return *this;
    return {_mm512_srli_epi16(v, s)};
  }
  template <int s>
  TUTTI_INLINE Bytes shift_left() const {
    return {_mm512_slli_epi16(v, s)};
  }
};
TUTTI_INLINE Bytes operator&(Bytes a, Bytes b) {
  return {_mm512_and_si512(a.v, b.v)};
}
TUTTI_INLINE Bytes operator|(Bytes a, Bytes b) {
  return {_mm512_or_si512(a.v, b.v)};
}

struct Sum {
  __m512i v;
};
TUTTI_INLINE Vec to_float(Sum s) {
  return {_mm512_cvtepi32_ps(s.v)};
}
TUTTI_INLINE Vec fused(Vec a, Vec b, Vec c) {
  return fma(a, b, c);
}

// Four consecutive int8 in every lane.
TUTTI_INLINE __m512i broadcast_quad(const int8_t* p) {
  int32_t quad;
  std::memcpy(&quad, p, sizeof quad);
  return _mm512_set1_epi32(quad);
}

// a + b of 16 bits, kept in the order of the source: the compiler would turn a chain of sums into a tree, whose leaves
// don't fit the registers.
TUTTI_INLINE __m512i chain_add16(__m512i a, __m512i b) {
  __m512i sum = _mm512_add_epi16(a, b);
  asm("" : "+v"(sum));
  return sum;
}

template <int kk>
TUTTI_INLINE Vec quad_floats(const uint8_t* p) {
  const __m512i quads = _mm512_loadu_si512(p);
  return {_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(quads, 8 * kk), _mm512_set1_epi32(255)))};
}

}  // namespace tutti::kernels::avx512
TUTTI_TARGET_AVX512_END
#endif
