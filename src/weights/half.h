// IEEE binary16 as its 16 bits: widening to float32 is exact.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti::weights {

constexpr float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero or subnormal
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace tutti::weights
