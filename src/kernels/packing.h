// Where a value of a matrix lies (matrix.h): element access for packing, for the reference loops and for reading rows.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"

namespace tutti::kernels {

// Bits of a code in the base plane and in the second plane.
struct Planes {
  int base = 0, extra = 0;
};
constexpr Planes planes_of(int bits) {
  switch (bits) {
    case 2:
      return {2, 0};
    case 3:
      return {2, 1};
    case 4:
      return {4, 0};
    case 5:
      return {4, 1};
    case 6:
      return {4, 2};
    default:
      return {8, 0};
  }
}

constexpr int padded_k(int K) {
  return (K + 1) / 2 * 2;
}

// Index of element (n, k) in the values of a float format.
constexpr int64_t float32_index(int K, int n, int k) {
  return static_cast<int64_t>(n / kPanel) * padded_k(K) * kPanel + static_cast<int64_t>(k) * kPanel + n % kPanel;
}
constexpr int64_t bfloat16_index(int K, int n, int k) {
  return static_cast<int64_t>(n / kPanel) * padded_k(K) * kPanel + static_cast<int64_t>(k / 2) * 2 * kPanel +
         2 * (n % kPanel) + k % 2;
}

// Byte of a plane of `width` bits that holds a part of code (n, k), and the shift of that part inside the byte.
struct PlaneBit {
  int64_t byte = 0;
  int shift = 0;
};
constexpr PlaneBit plane_bit(int K, int n, int k, int width) {
  const int per_vector = 8 / width;
  const int vec = k / 4;
  const int64_t vector = static_cast<int64_t>(n / kPanel) * (K / 4 / per_vector) + vec / per_vector;
  return {vector * 64 + 4 * (n % kPanel) + k % 4, vec % per_vector * width};
}

constexpr int64_t scale_index(int groups, int n, int g) {
  return (static_cast<int64_t>(n / kPanel) * groups + g) * kPanel + n % kPanel;
}

inline float float_value(const Matrix& m, int n, int k) {
  if (m.format.format == quant::Format::float32) {
    return static_cast<const float*>(m.values)[float32_index(m.K, n, k)];
  }
  return bf16_to_float(static_cast<const bf16*>(m.values)[bfloat16_index(m.K, n, k)]);
}

inline int affine_code(const Matrix& m, int n, int k) {
  const Planes planes = planes_of(m.format.affine.bits);
  const PlaneBit low = plane_bit(m.K, n, k, planes.base);
  int code = (static_cast<const uint8_t*>(m.values)[low.byte] >> low.shift) & ((1 << planes.base) - 1);
  if (planes.extra != 0) {
    const PlaneBit high = plane_bit(m.K, n, k, planes.extra);
    const int top = (static_cast<const uint8_t*>(m.extra)[high.byte] >> high.shift) & ((1 << planes.extra) - 1);
    code |= top << planes.base;
  }
  return code;
}

// scales or biases of m, as `plane`.
inline float scale_value(const Matrix& m, const void* plane, int n, int g) {
  const int64_t i = scale_index(m.K / m.format.affine.group, n, g);
  return m.scale_float32 ? static_cast<const float*>(plane)[i] : bf16_to_float(static_cast<const bf16*>(plane)[i]);
}

}  // namespace tutti::kernels
