// MLX affine quantisation: value = scale * code + bias, groups along the input axis (spec: MLX, checkpoints
// section 5.1). Codes of a row form one little-endian bit stream: code i occupies bits [i*bits, (i+1)*bits).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::quant {

struct AffineSpec {
  int bits = 4;    // 2, 3, 4, 5, 6 or 8
  int group = 64;  // 32, 64 or 128 codes share a scale and a bias
  friend bool operator==(const AffineSpec&, const AffineSpec&) = default;
};

bool is_supported(AffineSpec spec);

// uint32 words of one row of k codes; k is a multiple of the group.
inline int64_t affine_words(int64_t k, int bits) {
  return k * bits / 32;
}

// codes[i] for i in [0, k) from the row's words.
void unpack_affine_row(const uint32_t* words, int64_t k, int bits, uint8_t* codes);

// out[i] = scale * code + bias in float32 (one multiply, one add, no contraction). scales, biases: [k / group].
void dequantize_affine_row(const uint32_t* words, const float* scales, const float* biases, int64_t k, AffineSpec spec,
                           float* out);

// The quantisation rule of MLX, for tests and benches: w [k] → codes [k], scales and biases [k / group].
void quantize_affine_row(const float* w, int64_t k, AffineSpec spec, uint8_t* codes, float* scales, float* biases);
void pack_affine_row(const uint8_t* codes, int64_t k, int bits, uint32_t* words);

}  // namespace tutti::quant
