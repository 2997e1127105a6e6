#include "quant/affine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "quant/formats.h"

namespace tutti::quant {
namespace {

struct Packed {
  std::vector<uint8_t> codes;
  std::vector<float> scales, biases;
  std::vector<uint32_t> words;
};

Packed quantize(const std::vector<float>& w, AffineSpec spec) {
  const int64_t k = static_cast<int64_t>(w.size());
  Packed p{std::vector<uint8_t>(w.size()), std::vector<float>(w.size() / spec.group),
           std::vector<float>(w.size() / spec.group), std::vector<uint32_t>(affine_words(k, spec.bits))};
  quantize_affine_row(w.data(), k, spec, p.codes.data(), p.scales.data(), p.biases.data());
  pack_affine_row(p.codes.data(), k, spec.bits, p.words.data());
  return p;
}

struct Vector {
  int bits;
  std::vector<uint32_t> words;
};

// Words of MLX for w_0 = 0, w_1 = 2^bits - 1, w_i = (7i + 1) mod 2^bits.
const Vector kVectors[] = {
    {2, {0x4e4e4e43, 0x4e4e4e4e}},
    {3, {0x3eb1a207, 0xa23eb1a2, 0xb1a23eb1}},
    {4, {0xd4b2900f, 0x5c3a18f6, 0xd4b2907e, 0x5c3a18f6}},
    {5, {0x3624c01f, 0xa8e3e66d, 0x80eeaf06, 0xf6e9172c, 0x2b27a0a1}},
    {6, {0xe2a7003f, 0x8fc63546, 0x55c8eac7, 0xf2e401ce, 0x83d6764a, 0x96ccfa04}},
    {8, {0xe9f000ff, 0xcdd4dbe2, 0xb1b8bfc6, 0x959ca3aa, 0x7980878e, 0x5d646b72, 0x41484f56, 0x252c333a}},
};

TEST(Affine, WordsAreThoseOfMlx) {
  for (const Vector& v : kVectors) {
    SCOPED_TRACE(v.bits);
    const int levels = 1 << v.bits;
    std::vector<float> w(32);
    for (int i = 0; i < 32; ++i) w[i] = static_cast<float>((7 * i + 1) % levels);
    w[0] = 0;
    w[1] = static_cast<float>(levels - 1);
    const Packed p = quantize(w, {v.bits, 32});
    EXPECT_EQ(p.words, v.words);
    EXPECT_EQ(p.scales[0], -1.0f);
    EXPECT_EQ(p.biases[0], static_cast<float>(levels - 1));

    std::vector<float> back(32);
    dequantize_affine_row(v.words.data(), p.scales.data(), p.biases.data(), 32, {v.bits, 32}, back.data());
    EXPECT_EQ(back, w);
  }
}

TEST(Affine, ALineOfWeightsQuantisesAsInMlx) {
  std::vector<float> w(32);
  for (int i = 0; i < 32; ++i) w[i] = -1.0f + 3.0f * static_cast<float>(i) / 31.0f;
  const Packed p = quantize(w, {4, 32});
  EXPECT_EQ(p.words, (std::vector<uint32_t>{0xccddeeff, 0x8899aabb, 0x44556677, 0x00112233}));
  EXPECT_FLOAT_EQ(p.scales[0], -0.2f);
  EXPECT_FLOAT_EQ(p.biases[0], 2.0f);
}

TEST(Affine, ZeroWeightsStayZero) {
  const Packed p = quantize(std::vector<float>(64, 0.0f), {4, 64});
  std::vector<float> back(64, 1.0f);
  dequantize_affine_row(p.words.data(), p.scales.data(), p.biases.data(), 64, {4, 64}, back.data());
  EXPECT_EQ(back, std::vector<float>(64, 0.0f));
}

TEST(Affine, CodesSurvivePackingInEveryWidth) {
  std::mt19937 rng(7);
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    SCOPED_TRACE(bits);
    std::vector<uint8_t> codes(384), back(384);
    for (auto& c : codes) c = static_cast<uint8_t>(rng() & ((1u << bits) - 1));
    std::vector<uint32_t> words(affine_words(384, bits));
    pack_affine_row(codes.data(), 384, bits, words.data());
    unpack_affine_row(words.data(), 384, bits, back.data());
    EXPECT_EQ(back, codes);
    // The definition: code i occupies bits [i*bits, (i+1)*bits) of the little-endian stream.
    for (int i = 0; i < 384; ++i) {
      int code = 0;
      for (int b = 0; b < bits; ++b)
        code |= static_cast<int>(words[(i * bits + b) / 32] >> ((i * bits + b) % 32) & 1) << b;
      ASSERT_EQ(code, codes[i]) << i;
    }
  }
}

TEST(Affine, ErrorIsAtMostAStep) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group : {32, 64, 128}) {
      SCOPED_TRACE(testing::Message() << bits << " bits, group " << group);
      std::vector<float> w(256), back(256);
      for (auto& x : w) x = normal(rng);
      const AffineSpec spec{bits, group};
      const Packed p = quantize(w, spec);
      dequantize_affine_row(p.words.data(), p.scales.data(), p.biases.data(), 256, spec, back.data());
      for (int i = 0; i < 256; ++i) {
        const float step = std::abs(p.scales[i / group]);
        // Rounding the edge to a whole number of steps may cost the far end up to half a step more.
        EXPECT_LE(std::abs(back[i] - w[i]), 1.01f * step) << i;
        EXPECT_EQ(back[i], p.scales[i / group] * static_cast<float>(p.codes[i]) + p.biases[i / group]);
      }
    }
  }
}

TEST(Affine, OnlyTheWidthsAndGroupsOfTheFormatAreSupported) {
  for (int bits = 0; bits <= 9; ++bits) {
    const bool width = bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
    for (int group : {16, 32, 48, 64, 128, 256}) {
      const bool expected = width && (group == 32 || group == 64 || group == 128);
      EXPECT_EQ(is_supported({bits, group}), expected) << bits << " bits, group " << group;
    }
  }
}

TEST(Formats, InputsOfAWeightShareItsGroup) {
  EXPECT_EQ(activation_group({Format::affine, {4, 128}}), 128);
  EXPECT_EQ(activation_group({Format::bfloat16, {}}), 32);
}

}  // namespace
}  // namespace tutti::quant
