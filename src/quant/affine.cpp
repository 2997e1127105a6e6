#include "quant/affine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tutti::quant {
namespace {

// Eight nibbles of a word as eight bytes, in order.
uint64_t spread_nibbles(uint32_t word) {
  uint64_t x = word;
  x = (x | (x << 16)) & 0x0000ffff0000ffffull;
  x = (x | (x << 8)) & 0x00ff00ff00ff00ffull;
  return (x | (x << 4)) & 0x0f0f0f0f0f0f0f0full;
}

}  // namespace

bool is_supported(AffineSpec spec) {
  const bool bits = (spec.bits >= 2 && spec.bits <= 6) || spec.bits == 8;
  return bits && (spec.group == 32 || spec.group == 64 || spec.group == 128);
}

void unpack_affine_row(const uint32_t* words, int64_t k, int bits, uint8_t* codes) {
  if (bits == 8) {
    std::memcpy(codes, words, static_cast<size_t>(k));
    return;
  }
  if (bits == 4) {
    for (int64_t i = 0; i < k; i += 8) {
      uint32_t word;
      std::memcpy(&word, words + i / 8, sizeof word);
      const uint64_t spread = spread_nibbles(word);
      std::memcpy(codes + i, &spread, sizeof spread);
    }
    return;
  }
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint64_t buffer = 0;
  int filled = 0;
  for (int64_t i = 0; i < k; ++i) {
    if (filled < bits) {
      uint32_t word;
      std::memcpy(&word, words++, sizeof word);
      buffer |= static_cast<uint64_t>(word) << filled;
      filled += 32;
    }
    codes[i] = static_cast<uint8_t>(buffer & mask);
    buffer >>= bits;
    filled -= bits;
  }
}

void pack_affine_row(const uint8_t* codes, int64_t k, int bits, uint32_t* words) {
  uint64_t buffer = 0;
  int filled = 0;
  for (int64_t i = 0; i < k; ++i) {
    buffer |= static_cast<uint64_t>(codes[i]) << filled;
    filled += bits;
    if (filled >= 32) {
      const uint32_t word = static_cast<uint32_t>(buffer);
      std::memcpy(words++, &word, sizeof word);
      buffer >>= 32;
      filled -= 32;
    }
  }
}

void dequantize_affine_row(const uint32_t* words, const float* scales, const float* biases, int64_t k, AffineSpec spec,
                           float* out) {
  uint8_t codes[128];
  for (int64_t g = 0; g < k / spec.group; ++g) {
    unpack_affine_row(words + affine_words(g * spec.group, spec.bits), spec.group, spec.bits, codes);
    for (int i = 0; i < spec.group; ++i) {
      out[g * spec.group + i] = scales[g] * static_cast<float>(codes[i]) + biases[g];
    }
  }
}

void quantize_affine_row(const float* w, int64_t k, AffineSpec spec, uint8_t* codes, float* scales, float* biases) {
  const float top = static_cast<float>((1 << spec.bits) - 1);
  for (int64_t g = 0; g < k / spec.group; ++g) {
    const float* in = w + g * spec.group;
    const auto [low, high] = std::minmax_element(in, in + spec.group);
    float scale = std::max((*high - *low) / top, 1e-7f);
    const bool low_edge = std::abs(*low) > std::abs(*high);
    if (!low_edge) scale = -scale;
    const float edge = low_edge ? *low : *high;
    const float steps = std::rint(edge / scale);
    float bias = 0;
    if (steps != 0) {
      scale = edge / steps;
      bias = edge;
    }
    for (int i = 0; i < spec.group; ++i) {
      const float code = std::clamp(std::rint((in[i] - bias) / scale), 0.0f, top);
      codes[g * spec.group + i] = static_cast<uint8_t>(code);
    }
    scales[g] = scale;
    biases[g] = bias;
  }
}

}  // namespace tutti::quant
