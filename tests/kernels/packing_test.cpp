#include "kernels/packing.h"

#include <gtest/gtest.h>

#include "kernels/matmul_cases.h"

namespace tutti::kernels {
namespace {

using namespace testing;
using quant::Format;

TEST(PackedSizes, RowsArePaddedToPanels) {
  const PackedSizes floats = packed_sizes({Format::float32, {}}, 17, 5, false);
  EXPECT_EQ(floats.values, 32 * 6 * 4);
  EXPECT_EQ(packed_sizes({Format::bfloat16, {}}, 16, 64, false).values, 16 * 64 * 2);
  const PackedSizes six = packed_sizes({Format::affine, {6, 64}}, 40, 128, false);
  EXPECT_EQ(six.values, 48 * 128 / 2);
  EXPECT_EQ(six.extra, 48 * 128 / 4);
  EXPECT_EQ(six.scales, 48 * 2 * 2);
  EXPECT_EQ(packed_sizes({Format::affine, {6, 64}}, 40, 128, true).scales, 48 * 2 * 4);
  EXPECT_EQ(packed_sizes({Format::affine, {4, 64}}, 40, 128, false).extra, 0);
}

// The layout that matrix.h promises, written out for one value.
TEST(PackPanels, FourBitCodesLieAsTheHeaderSays) {
  std::vector<uint8_t> codes(32 * 64);
  std::mt19937 rng(1);
  for (auto& c : codes) c = static_cast<uint8_t>(rng() & 15);
  const TestMatrix w = affine_matrix({4, 32}, 32, 64, false, codes, rng);
  const auto* plane = static_cast<const uint8_t*>(w.m.values);
  for (int n = 0; n < 32; ++n) {
    for (int k = 0; k < 64; ++k) {
      const int vec = k / 4;
      const int byte = plane[((n / 16) * 8 + vec / 2) * 64 + 4 * (n % 16) + k % 4];
      ASSERT_EQ((byte >> (vec % 2 * 4)) & 15, codes[n * 64 + k]) << n << ' ' << k;
    }
  }
}

TEST(PackPanels, Bfloat16InterleavesPairsOfK) {
  std::vector<bf16> source(20 * 6);
  std::iota(source.begin(), source.end(), bf16{100});
  TestMatrix w({Format::bfloat16, {}}, 20, 6, false);
  pack_panels({.type = SourceType::bfloat16, .values = source.data()}, w.m, 0, 2);
  const auto* values = static_cast<const bf16*>(w.m.values);
  for (int n = 0; n < 20; ++n) {
    for (int k = 0; k < 6; ++k)
      ASSERT_EQ(values[(n / 16) * 96 + (k / 2) * 32 + 2 * (n % 16) + k % 2], source[n * 6 + k]);
  }
}

TEST(PackPanels, AffineRowsComeBack) {
  std::mt19937 rng(2);
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group : {32, 64, 128}) {
      for (bool scale_float32 : {false, true}) {
        SCOPED_TRACE(::testing::Message() << bits << " bits, group " << group);
        const int N = 21, K = 3 * group;
        std::vector<uint8_t> codes(static_cast<size_t>(N * K));
        for (auto& c : codes) c = static_cast<uint8_t>(rng() & ((1u << bits) - 1));
        const TestMatrix w = affine_matrix({bits, group}, N, K, scale_float32, codes, rng);
        std::vector<float> row(static_cast<size_t>(K));
        for (int n = 0; n < N; ++n) {
          unpack_row(w.m, n, row.data());
          for (int k = 0; k < K; ++k) {
            ASSERT_EQ(affine_code(w.m, n, k), codes[n * K + k]);
            const float scale = scale_value(w.m, w.m.scales, n, k / group),
                        bias = scale_value(w.m, w.m.biases, n, k / group);
            ASSERT_EQ(row[k], scale * static_cast<float>(codes[n * K + k]) + bias);
          }
        }
      }
    }
  }
}

// The packed values are those of the file's own decoder.
TEST(PackPanels, AgreesWithDequantizingTheFile) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  const int N = 5, K = 128;
  const quant::AffineSpec spec{5, 64};
  std::vector<float> w(K), want(N * K), scales(N * 2), biases(N * 2);
  std::vector<uint8_t> codes(K);
  std::vector<uint32_t> words(N * quant::affine_words(K, 5));
  for (int n = 0; n < N; ++n) {
    for (auto& x : w) x = normal(rng);
    quant::quantize_affine_row(w.data(), K, spec, codes.data(), &scales[n * 2], &biases[n * 2]);
    quant::pack_affine_row(codes.data(), K, 5, &words[n * quant::affine_words(K, 5)]);
    quant::dequantize_affine_row(&words[n * quant::affine_words(K, 5)], &scales[n * 2], &biases[n * 2], K, spec,
                                 &want[n * K]);
  }
  TestMatrix m({Format::affine, spec}, N, K, true);
  pack_panels({SourceType::affine, words.data(), scales.data(), biases.data(), SourceType::float32}, m.m, 0, 1);
  std::vector<float> row(K);
  for (int n = 0; n < N; ++n) {
    unpack_row(m.m, n, row.data());
    EXPECT_TRUE(same_bits(row, {want.begin() + n * K, want.begin() + (n + 1) * K}));
  }
}

TEST(PackPanels, FloatRowsComeBackFromAnySourceAndAlignment) {
  const std::vector<float> exact = {0.0f,     -0.0f,   1.0f, -2.5f,
                                    0.15625f, 1024.0f, -3.0f};  // exact in float16 and bfloat16
  const uint16_t halves[] = {0x0000, 0x8000, 0x3c00, 0xc100, 0x3100, 0x6400, 0xc200};
  std::vector<char> bytes(1 + sizeof halves);
  std::memcpy(bytes.data() + 1, halves, sizeof halves);  // odd address
  for (Format format : {Format::float32, Format::bfloat16}) {
    TestMatrix w({format, {}}, 1, 7, false);
    std::vector<float> row(7);
    pack_panels({.type = SourceType::float16, .values = bytes.data() + 1}, w.m, 0, 1);
    unpack_row(w.m, 0, row.data());
    EXPECT_TRUE(same_bits(row, exact));
    pack_panels({.type = SourceType::float32, .values = exact.data()}, w.m, 0, 1);
    unpack_row(w.m, 0, row.data());
    EXPECT_TRUE(same_bits(row, exact));
  }
}

TEST(PackPanels, EveryFloat16ValueIsExact) {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), uint16_t{0});
  TestMatrix w({Format::float32, {}}, 1, 65536, false);
  pack_panels({.type = SourceType::float16, .values = halves.data()}, w.m, 0, 1);
  std::vector<float> row(65536);
  unpack_row(w.m, 0, row.data());
  for (int i = 0; i < 65536; ++i) {
    const int exponent = (i >> 10) & 31, fraction = i & 1023;
    const float sign = (i & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(row[i]), fraction != 0) << i;
      ASSERT_EQ(std::isinf(row[i]), fraction == 0) << i;
      continue;
    }
    const float want = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                     : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    ASSERT_EQ(row[i], sign * want) << i;
  }
}

// Rows beyond N are zero whatever the memory held, and only the asked panels are written.
TEST(PackPanels, WritesItsPanelsWhole) {
  std::mt19937 rng(4);
  TestMatrix w = random_affine({4, 32}, 50, 64, false, rng);
  std::memset(w.values.data(), 0xff, w.values.bytes());
  std::vector<uint32_t> words(50 * 8);
  std::vector<float> scales(100, 1.0f), biases(100, 1.0f);
  pack_panels({SourceType::affine, words.data(), scales.data(), biases.data(), SourceType::float32}, w.m, 3, 4);
  const auto* bytes = w.values.as<uint8_t>();
  const size_t panel = 16 * 64 / 2;
  EXPECT_TRUE(std::all_of(bytes, bytes + 3 * panel, [](uint8_t b) { return b == 0xff; }));
  EXPECT_TRUE(std::all_of(bytes + 3 * panel, bytes + 4 * panel, [](uint8_t b) { return b == 0; }));
  EXPECT_EQ(scale_value(w.m, w.m.scales, 49, 0), 1.0f);
  EXPECT_EQ(scale_value(w.m, w.m.scales, 50, 0), 0.0f);
  EXPECT_EQ(scale_value(w.m, w.m.biases, 63, 1), 0.0f);
}

}  // namespace
}  // namespace tutti::kernels
