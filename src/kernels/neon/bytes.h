// Integers of NEON for the matrix products (generic/matmul_common.inl.h, generic/matmul_int8.inl.h).
#pragma once

#include "kernels/neon/vec.h"

#if defined(TUTTI_KERNELS_NEON)
namespace tutti::kernels::neon {

struct Bytes {
  static constexpr int kSize = 16;
  uint8x16_t v;

  static TUTTI_INLINE Bytes load(const uint8_t* p) { return {vld1q_u8(p)}; }
  static TUTTI_INLINE Bytes fill(int byte) { return {vdupq_n_u8(static_cast<uint8_t>(byte))}; }
  TUTTI_INLINE void store(uint8_t* p) const { vst1q_u8(p, v); }
  template <int s>
  TUTTI_INLINE Bytes shift_right() const {
    if constexpr (s == 0) {
      return *this;
    } else {
      return {vshrq_n_u8(v, s)};
    }
  }
  template <int s>
  TUTTI_INLINE Bytes shift_left() const {
    return {vshlq_n_u8(v, s)};
  }
};
TUTTI_INLINE Bytes operator&(Bytes a, Bytes b) {
  return {vandq_u8(a.v, b.v)};
}
TUTTI_INLINE Bytes operator|(Bytes a, Bytes b) {
  return {vorrq_u8(a.v, b.v)};
}

struct Sum {
  int32x4_t v;
};
TUTTI_INLINE Vec to_float(Sum s) {
  return {vcvtq_f32_s32(s.v)};
}
TUTTI_INLINE Vec fused(Vec a, Vec b, Vec c) {
  return fma(a, b, c);
}

// Four consecutive int8 in every lane.
TUTTI_INLINE int8x16_t broadcast_quad(const int8_t* p) {
  int32_t quad;
  std::memcpy(&quad, p, sizeof quad);
  return vreinterpretq_s8_s32(vdupq_n_s32(quad));
}

template <int kk>
TUTTI_INLINE Vec quad_floats(const uint8_t* p) {
  uint32x4_t quads = vreinterpretq_u32_u8(vld1q_u8(p));
  if constexpr (kk != 0) quads = vshrq_n_u32(quads, 8 * kk);
  return {vcvtq_f32_u32(vandq_u32(quads, vdupq_n_u32(255)))};
}

}  // namespace tutti::kernels::neon
#endif
