// Integers of AVX2 for the matrix products (generic/matmul_common.inl.h, generic/matmul_int8.inl.h).
#pragma once

#include "kernels/avx2/vec.h"

#if defined(TUTTI_KERNELS_X86)
TUTTI_TARGET_AVX2_BEGIN
namespace tutti::kernels::avx2 {

TUTTI_INLINE __m256i load_bytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

struct Bytes {
  static constexpr int kSize = 32;
  __m256i v;

  static TUTTI_INLINE Bytes load(const uint8_t* p) { return {load_bytes(p)}; }
  static TUTTI_INLINE Bytes fill(int byte) { return {_mm256_set1_epi8(static_cast<char>(byte))}; }
  TUTTI_INLINE void store(uint8_t* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  template <int s>
  TUTTI_INLINE Bytes shift_right() const {
    if constexpr (s == 0) return *this;
    return {_mm256_srli_epi16(v, s)};
  }
  template <int s>
  TUTTI_INLINE Bytes shift_left() const {
    return {_mm256_slli_epi16(v, s)};
  }
};
TUTTI_INLINE Bytes operator&(Bytes a, Bytes b) {
  return {_mm256_and_si256(a.v, b.v)};
}
TUTTI_INLINE Bytes operator|(Bytes a, Bytes b) {
  return {_mm256_or_si256(a.v, b.v)};
}

struct Sum {
  __m256i v;
};
TUTTI_INLINE Vec to_float(Sum s) {
  return {_mm256_cvtepi32_ps(s.v)};
}
TUTTI_INLINE Vec fused(Vec a, Vec b, Vec c) {
  return fma(a, b, c);
}

// Four consecutive int8 in every lane.
TUTTI_INLINE __m256i broadcast_quad(const int8_t* p) {
  int32_t quad;
  std::memcpy(&quad, p, sizeof quad);
  return _mm256_set1_epi32(quad);
}

// a + b of 16 bits, kept in the order of the source: the compiler would turn a chain of sums into a tree, whose leaves
// don't fit the registers.
TUTTI_INLINE __m256i chain_add16(__m256i a, __m256i b) {
  __m256i sum = _mm256_add_epi16(a, b);
  asm("" : "+x"(sum));
  return sum;
}

template <int kk>
TUTTI_INLINE Vec quad_floats(const uint8_t* p) {
  const __m256i byte = _mm256_and_si256(_mm256_srli_epi32(load_bytes(p), 8 * kk), _mm256_set1_epi32(255));
  return {_mm256_cvtepi32_ps(byte)};
}

}  // namespace tutti::kernels::avx2
TUTTI_TARGET_AVX2_END
#endif
