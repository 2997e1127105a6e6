// Vec of the scalar ISA: four floats that the compiler maps to what every processor has. fma rounds twice here (a fused
// one would be a library call on x86-64 without FMA).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/bfloat16.h"
#include "kernels/target.h"

namespace tutti::kernels::scalar {

struct Vec {
  static constexpr int kWidth = 4;
  static constexpr int kRegisters = 16;
  typedef float Raw __attribute__((vector_size(16)));
  Raw v;

  static TUTTI_INLINE Vec zero() { return {Raw{}}; }
  static TUTTI_INLINE Vec broadcast(float a) { return {Raw{a, a, a, a}}; }
  static TUTTI_INLINE Vec load(const float* p) {
    Vec r;
    std::memcpy(&r.v, p, sizeof(Raw));
    return r;
  }
  // Lanes >= n are zero and not read; 0 <= n <= kWidth.
  static TUTTI_INLINE Vec load_partial(const float* p, int n) {
    Vec r = zero();
    for (int i = 0; i < n; ++i) r.v[i] = p[i];
    return r;
  }
  static TUTTI_INLINE Vec load_bf16(const bf16* p) {
    return {Raw{bf16_to_float(p[0]), bf16_to_float(p[1]), bf16_to_float(p[2]), bf16_to_float(p[3])}};
  }
  TUTTI_INLINE void store(float* p) const { std::memcpy(p, &v, sizeof(Raw)); }
  TUTTI_INLINE void store_partial(float* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
  TUTTI_INLINE void store_bf16(bf16* p) const {  // to nearest even, NaN stays NaN
    for (int i = 0; i < 4; ++i) p[i] = float_to_bf16(v[i]);
  }
};

TUTTI_INLINE Vec add(Vec a, Vec b) {
  return {a.v + b.v};
}
TUTTI_INLINE Vec sub(Vec a, Vec b) {
  return {a.v - b.v};
}
TUTTI_INLINE Vec mul(Vec a, Vec b) {
  return {a.v * b.v};
}
TUTTI_INLINE Vec div(Vec a, Vec b) {
  return {a.v / b.v};
}
TUTTI_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {a.v * b.v + c.v};
}  // a * b + c
TUTTI_INLINE Vec max(Vec a, Vec b) {
  return {a.v > b.v ? a.v : b.v};
}  // b when either is NaN
TUTTI_INLINE Vec min(Vec a, Vec b) {
  return {a.v < b.v ? a.v : b.v};
}  // b when either is NaN
// (lane i + lane i+2), then the two sums.
TUTTI_INLINE float reduce_add(Vec a) {
  return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
}
TUTTI_INLINE float first_lane(Vec a) {
  return a.v[0];
}
TUTTI_INLINE float reduce_max(Vec a) {
  const float x = a.v[0] > a.v[2] ? a.v[0] : a.v[2], y = a.v[1] > a.v[3] ? a.v[1] : a.v[3];
  return x > y ? x : y;
}
// To the nearest integer, |a| < 2^22.
TUTTI_INLINE Vec round_even(Vec a) {
  const Vec magic = Vec::broadcast(12582912.0f);
  return sub(add(a, magic), magic);
}
// a * 2^n for integers n in [-250, 250], in two exact factors so that the result may be subnormal or overflow.
TUTTI_INLINE Vec scale_by_power(Vec a, Vec n) {
  typedef int32_t Ints __attribute__((vector_size(16)));
  const Ints whole = std::bit_cast<Ints>(n.v + 12582912.0f) - 0x4b400000;  // no conversion: NaN would be undefined
  const Ints half = whole >> 1;
  const Ints bias = {127, 127, 127, 127};
  return {(a.v * std::bit_cast<Vec::Raw>((half + bias) << 23)) * std::bit_cast<Vec::Raw>((whole - half + bias) << 23)};
}
TUTTI_INLINE Vec pinned(Vec a) {
  return a;
}  // AVX-512 holds it in a register
struct Mask {
  typedef int32_t Raw __attribute__((vector_size(16)));
  Raw m;
};
TUTTI_INLINE Mask greater(Vec a, Vec b) {
  return {a.v > b.v};
}
TUTTI_INLINE Vec select(Mask m, Vec x, Vec y) {
  return {m.m ? x.v : y.v};
}

#include "kernels/generic/math.inl.h"

}  // namespace tutti::kernels::scalar
