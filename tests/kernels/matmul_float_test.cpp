#include <gtest/gtest.h>

#include "kernels/matmul_cases.h"

namespace tutti::kernels {
namespace {

using namespace testing;
using quant::Format;

// All sets with a fused multiply-add equal the reference to the bit; scalar rounds the products too.
void expect_product(const KernelSet& set, const std::vector<float>& got, const std::vector<float>& want, int K) {
  if (set.table.isa != Isa::scalar) {
    ASSERT_TRUE(same_bits(got, want));
    return;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-6f * static_cast<float>(K) * (1 + std::abs(want[i]))) << i;
  }
}

TEST(RoundBf16, EqualsTheReferenceToTheBit) {
  std::mt19937 rng(1);
  std::vector<float> x(1003);
  for (auto& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(rng()));
  x[0] = std::numeric_limits<float>::infinity();
  x[1] = std::bit_cast<float>(0x7f800001u);  // a NaN whose payload would round away
  x[2] = std::bit_cast<float>(0x3f808000u);  // halves: to even
  x[3] = std::bit_cast<float>(0x3f818000u);
  std::vector<float> want(x.size());
  table(Isa::reference)->round_bf16(x.data(), 1003, want.data());
  EXPECT_EQ(want[2], 1.0f);
  EXPECT_EQ(want[3], 1.015625f);
  EXPECT_TRUE(std::isnan(want[1]));
  for (const KernelSet& set : kernel_sets()) {
    SCOPED_TRACE(set.name);
    std::vector<float> y(x.size() + 1, kUntouched);
    set.table.round_bf16(x.data(), 1003, y.data());
    EXPECT_EQ(y.back(), kUntouched);
    y.pop_back();
    EXPECT_TRUE(same_bits(y, want));
  }
}

TEST(MatmulFloat, EqualsTheReference) {
  std::mt19937 rng(2);
  for (Format format : {Format::float32, Format::bfloat16}) {
    for (auto [N, K] : {std::pair{16, 2}, {1, 64}, {37, 65}, {150, 96}, {65, 1}, {40, 1030}}) {
      const TestMatrix w = random_float(format, N, K, rng);
      const TestInputs in(65, K, rng);
      const std::vector<float> want = multiply(table(Isa::reference)->matmul_float, w.m, in, 65);
      for (const KernelSet& set : kernel_sets()) {
        if (set.table.isa == Isa::reference) continue;
        for (int M : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 64, 65}) {
          SCOPED_TRACE(::testing::Message() << set.name << " N " << N << " K " << K << " M " << M);
          expect_product(set, multiply(set.table.matmul_float, w.m, in, M), rows_of(want, N + kSpare, 0, M), K);
        }
      }
    }
  }
}

TEST(MatmulFloat, ARowIsTheSameAloneAtAnyPlaceAndInAnyTile) {
  std::mt19937 rng(3);
  const int K = 1100, N = 177, M = 141;
  for (Format format : {Format::float32, Format::bfloat16}) {
    const TestMatrix w = random_float(format, N, K, rng);
    const TestInputs in(M, K, rng);
    std::vector<int32_t> order(M);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    for (const KernelSet& set : kernel_sets()) {
      if (set.table.isa == Isa::reference) continue;
      SCOPED_TRACE(set.name);
      const Product product = set.table.matmul_float;
      const std::vector<float> all = multiply(product, w.m, in, M, order);
      for (int m = 0; m < M; m += 7) {
        EXPECT_TRUE(same_bits(multiply(product, w.m, in, 1, {order[m]}), rows_of(all, N + kSpare, m, 1))) << m;
      }
      for (int split : {1, 3, 8}) {
        std::vector<float> joined = multiply(product, w.m, in, M, order, 0, split);
        const std::vector<float> right = multiply(product, w.m, in, M, order, split, w.m.panels());
        for (size_t i = 0; i < joined.size(); ++i) {
          const int n = static_cast<int>(i) % (N + kSpare);
          ASSERT_EQ((n < 16 * split ? right : joined)[i], kUntouched);  // a tile writes its own columns only
          if (n >= 16 * split) joined[i] = right[i];
        }
        EXPECT_TRUE(same_bits(joined, all)) << split;
      }
    }
  }
}

TEST(MatmulAffineFloat, EqualsTheReference) {
  std::mt19937 rng(4);
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group : {32, 64, 128}) {
      for (int groups : {1, 5}) {
        const int K = group * groups, N = groups == 1 ? 37 : 64;
        const TestMatrix w = random_affine({bits, group}, N, K, groups == 5, rng);
        const TestInputs in(17, K, rng);
        const std::vector<float> want = multiply(table(Isa::reference)->matmul_affine_float, w.m, in, 17);
        for (const KernelSet& set : kernel_sets()) {
          if (set.table.isa == Isa::reference) continue;
          for (int M : {1, 2, 5, 8, 17}) {
            SCOPED_TRACE(::testing::Message()
                         << set.name << ' ' << bits << " bits, " << groups << " groups of " << group);
            expect_product(set, multiply(set.table.matmul_affine_float, w.m, in, M), rows_of(want, N + kSpare, 0, M),
                           K);
          }
        }
      }
    }
  }
}

// The same product as over the values themselves, in every set: the golden mode does not depend on how weights are
// stored.
TEST(MatmulAffineFloat, EqualsTheProductOverTheValues) {
  std::mt19937 rng(5);
  const int K = 384, N = 50, M = 33;
  const TestMatrix w = random_affine({6, 64}, N, K, false, rng);
  std::vector<float> values(static_cast<size_t>(N) * K);
  for (int n = 0; n < N; ++n) unpack_row(w.m, n, values.data() + static_cast<size_t>(n) * K);
  TestMatrix plain({Format::float32, {}}, N, K, false);
  pack_panels({.type = SourceType::float32, .values = values.data()}, plain.m, 0, plain.m.panels());
  const TestInputs in(M, K, rng);
  for (const KernelSet& set : kernel_sets()) {
    SCOPED_TRACE(set.name);
    EXPECT_TRUE(same_bits(multiply(set.table.matmul_affine_float, w.m, in, M),
                          multiply(set.table.matmul_float, plain.m, in, M)));
  }
}

TEST(MatmulAffineFloat, ARowIsTheSameAloneAndInAnyTile) {
  std::mt19937 rng(6);
  const int K = 640, N = 77, M = 13;
  const TestMatrix w = random_affine({5, 64}, N, K, false, rng);
  const TestInputs in(M, K, rng);
  for (const KernelSet& set : kernel_sets()) {
    SCOPED_TRACE(set.name);
    const Product product = set.table.matmul_affine_float;
    const std::vector<float> all = multiply(product, w.m, in, M);
    for (int32_t m = 0; m < M; ++m) {
      EXPECT_TRUE(same_bits(multiply(product, w.m, in, 1, {m}), rows_of(all, N + kSpare, m, 1))) << m;
    }
    const std::vector<float> left = multiply(product, w.m, in, M, {}, 0, 3);
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(left[i], static_cast<int>(i) % (N + kSpare) < 48 ? all[i] : kUntouched);
    }
  }
}

TEST(ReadRow, GivesTheValuesOfTheRow) {
  std::mt19937 rng(7);
  const TestMatrix affine = random_affine({3, 32}, 40, 96, false, rng);
  const TestMatrix bf16s = random_float(Format::bfloat16, 40, 97, rng);
  for (const KernelSet& set : kernel_sets()) {
    for (const Matrix* m : {&affine.m, &bf16s.m}) {
      std::vector<float> got(static_cast<size_t>(m->K)), want(got.size());
      for (int n : {0, 15, 16, 39}) {
        set.table.read_row(*m, n, got.data());
        unpack_row(*m, n, want.data());
        EXPECT_TRUE(same_bits(got, want));
      }
    }
  }
}

}  // namespace
}  // namespace tutti::kernels
