// Vec of NEON on AArch64: four floats.
#pragma once

#include "kernels/target.h"

#if defined(TUTTI_KERNELS_NEON)
#include <arm_neon.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/bfloat16.h"

namespace tutti::kernels::neon {

struct Vec {
  static constexpr int kWidth = 4;
  static constexpr int kRegisters = 32;
  float32x4_t v;

  static TUTTI_INLINE Vec zero() { return {vdupq_n_f32(0)}; }
  static TUTTI_INLINE Vec broadcast(float a) { return {vdupq_n_f32(a)}; }
  static TUTTI_INLINE Vec load(const float* p) { return {vld1q_f32(p)}; }
  // Lanes >= n are zero and not read; 0 <= n <= kWidth.
  static TUTTI_INLINE Vec load_partial(const float* p, int n) {
    float t[4] = {};
    for (int i = 0; i < n; ++i) t[i] = p[i];
    return load(t);
  }
  static TUTTI_INLINE Vec load_bf16(const bf16* p) { return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16))}; }
  TUTTI_INLINE void store(float* p) const { vst1q_f32(p, v); }
  TUTTI_INLINE void store_partial(float* p, int n) const {
    float t[4];
    store(t);
    for (int i = 0; i < n; ++i) p[i] = t[i];
  }
  TUTTI_INLINE void store_bf16(bf16* p) const {  // to nearest even, NaN stays NaN
    const uint32x4_t u = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    const uint32x4_t even = vshrq_n_u32(vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    const uint32x4_t nan = vorrq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(0x40));
    vst1_u16(p, vmovn_u32(vbslq_u32(vceqq_f32(v, v), even, nan)));
  }
};

TUTTI_INLINE Vec add(Vec a, Vec b) {
  return {vaddq_f32(a.v, b.v)};
}
TUTTI_INLINE Vec sub(Vec a, Vec b) {
  return {vsubq_f32(a.v, b.v)};
}
TUTTI_INLINE Vec mul(Vec a, Vec b) {
  return {vmulq_f32(a.v, b.v)};
}
TUTTI_INLINE Vec div(Vec a, Vec b) {
  return {vdivq_f32(a.v, b.v)};
}
TUTTI_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {vfmaq_f32(c.v, a.v, b.v)};
}  // a * b + c
TUTTI_INLINE Vec max(Vec a, Vec b) {
  return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)};
}  // b when either is NaN
TUTTI_INLINE Vec min(Vec a, Vec b) {
  return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)};
}  // b when either is NaN
// (lane i + lane i+2), then the two sums.
TUTTI_INLINE float reduce_add(Vec a) {
  const float32x2_t h = vadd_f32(vget_low_f32(a.v), vget_high_f32(a.v));
  return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
TUTTI_INLINE float first_lane(Vec a) {
  return vgetq_lane_f32(a.v, 0);
}
TUTTI_INLINE float reduce_max(Vec a) {
  return vmaxvq_f32(a.v);
}
TUTTI_INLINE Vec round_even(Vec a) {
  return {vrndnq_f32(a.v)};
}
// a * 2^n for integers n in [-250, 250], in two exact factors so that the result may be subnormal or overflow.
TUTTI_INLINE Vec scale_by_power(Vec a, Vec n) {
  const int32x4_t whole = vcvtq_s32_f32(n.v), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
  const int32x4_t f = vshlq_n_s32(vaddq_s32(half, bias), 23);
  const int32x4_t g = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
  return {vmulq_f32(vmulq_f32(a.v, vreinterpretq_f32_s32(f)), vreinterpretq_f32_s32(g))};
}
TUTTI_INLINE Vec pinned(Vec a) {
  return a;
}  // AVX-512 holds it in a register
struct Mask {
  uint32x4_t m;
};
TUTTI_INLINE Mask greater(Vec a, Vec b) {
  return {vcgtq_f32(a.v, b.v)};
}
TUTTI_INLINE Vec select(Mask m, Vec x, Vec y) {
  return {vbslq_f32(m.m, x.v, y.v)};
}  // x where set

#include "kernels/generic/math.inl.h"

}  // namespace tutti::kernels::neon
#endif
