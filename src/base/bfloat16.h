// bfloat16 as its 16 bits: widening is exact, narrowing rounds to nearest even and keeps NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti {

using bf16 = uint16_t;

constexpr float bf16_to_float(bf16 b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

constexpr bf16 float_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<bf16>((u >> 16) | 0x40);
  return static_cast<bf16>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

}  // namespace tutti
