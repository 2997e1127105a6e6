#include <gtest/gtest.h>

#include "kernels/matmul_cases.h"

namespace tutti::kernels {
namespace {

using namespace testing;

const std::vector<int> kBits = {2, 3, 4, 5, 6, 8};
const std::vector<int> kGroups = {32, 64, 128};

const KernelTable& reference_table() {
  return *table(Isa::reference);
}

TEST(KernelSets, AreTheOnesAskedFor) {
  for (Isa isa : available()) {
    ASSERT_NE(table(isa), nullptr);
    EXPECT_EQ(table(isa)->isa, isa);
  }
  EXPECT_GE(available().size(), 2u);
}

TEST(QuantizeInt8, EqualsTheReferenceToTheBit) {
  std::mt19937 rng(1);
  for (int group : kGroups) {
    const int M = 3, K = 2 * group;
    std::vector<float> x(static_cast<size_t>(M * K));
    std::normal_distribution<float> normal;
    for (auto& v : x) v = normal(rng);
    // Halves between codes: with max 127 the scale is 1, and 0.5, 1.5, 2.5 round to even.
    for (int i = 0; i < group; ++i) x[i] = static_cast<float>(i % 64) + 0.5f;
    x[0] = -127.0f;
    std::fill_n(x.begin() + group, group, 0.0f);        // a zero group
    std::fill_n(x.begin() + 2 * group, group, 1e-42f);  // subnormal: counts as zero
    x[3 * group + 5] = std::numeric_limits<float>::infinity();
    x[4 * group + group - 1] = std::numeric_limits<float>::quiet_NaN();
    const size_t groups = x.size() / group;
    std::vector<int8_t> want_q(x.size(), 77);
    std::vector<float> want_scale(groups), want_sum(groups);
    reference_table().quantize_int8(x.data(), M, K, group, want_q.data(), want_scale.data(), want_sum.data());
    for (const KernelSet& set : kernel_sets()) {
      SCOPED_TRACE(set.name);
      std::vector<int8_t> q(x.size(), 77);
      std::vector<float> scale(groups), sum(groups);
      set.table.quantize_int8(x.data(), M, K, group, q.data(), scale.data(), sum.data());
      EXPECT_EQ(q, want_q);
      for (size_t g = 0; g < groups; ++g) {
        EXPECT_TRUE(scale[g] == want_scale[g] || (std::isnan(scale[g]) && std::isnan(want_scale[g]))) << g;
        EXPECT_TRUE(sum[g] == want_sum[g] || (std::isnan(sum[g]) && std::isnan(want_sum[g]))) << g;
      }
    }
  }
}

TEST(QuantizeInt8, FollowsTheRule) {
  std::vector<float> x(32, 0.0f);
  x[0] = -127.0f;
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = 2.5f;
  x[4] = -2.5f;
  std::vector<int8_t> q(32);
  float scale = 0, sum = 0;
  for (const KernelSet& set : kernel_sets()) {
    SCOPED_TRACE(set.name);
    set.table.quantize_int8(x.data(), 1, 32, 32, q.data(), &scale, &sum);
    EXPECT_EQ(std::vector<int>(q.begin(), q.begin() + 6), (std::vector<int>{-127, 0, 2, 2, -2, 0}));
    EXPECT_EQ(scale, 1.0f);
    EXPECT_EQ(sum, -125.0f);
  }
}

TEST(QuantizeInt8, AFaultStaysInItsGroup) {
  std::vector<float> x(96, 1.0f);
  x[40] = std::numeric_limits<float>::quiet_NaN();
  std::vector<int8_t> q(96);
  std::vector<float> scale(3), sum(3);
  for (const KernelSet& set : kernel_sets()) {
    SCOPED_TRACE(set.name);
    set.table.quantize_int8(x.data(), 1, 96, 32, q.data(), scale.data(), sum.data());
    EXPECT_TRUE(std::isnan(scale[1]) && std::isnan(sum[1]));
    EXPECT_EQ(scale[0], scale[2]);
    EXPECT_EQ(q[40], 0);
    EXPECT_EQ(q[0], 127);
  }
}

TEST(MatmulAffineInt8, EqualsTheReferenceToTheBit) {
  std::mt19937 rng(2);
  for (int bits : kBits) {
    for (int group : kGroups) {
      for (int groups : {1, 3, 9}) {
        const int K = group * groups, N = groups == 3 ? 37 : groups == 1 ? 16 : 50;
        const TestMatrix w = random_affine({bits, group}, N, K, groups == 3, rng);
        const int rows = groups == 1 ? 65 : 18;
        const TestInputs in(rows, K, group, rng);
        const std::vector<float> want = multiply(reference_table().matmul_affine_int8, w.m, in, rows);
        for (const KernelSet& set : kernel_sets()) {
          if (set.table.isa == Isa::reference) continue;
          SCOPED_TRACE(::testing::Message()
                       << set.name << ' ' << bits << " bits, " << groups << " groups of " << group);
          for (int M : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 18, 64, 65}) {
            if (M > rows) break;
            ASSERT_TRUE(same_bits(multiply(set.table.matmul_affine_int8, w.m, in, M), rows_of(want, N + kSpare, 0, M)))
                << M << " rows";
          }
        }
      }
    }
  }
}

// K and M beyond every block of the kernels.
TEST(MatmulAffineInt8, BlocksDoNotShow) {
  std::mt19937 rng(3);
  for (int bits : {4, 8}) {
    const int K = 2176, N = 33, M = 530;
    const TestMatrix w = random_affine({bits, 128}, N, K, false, rng);
    const TestInputs in(M, K, 128, rng);
    std::vector<float> want;
    for (const KernelSet& set : kernel_sets()) {
      if (set.table.isa == Isa::reference) continue;
      SCOPED_TRACE(set.name);
      const std::vector<float> all = multiply(set.table.matmul_affine_int8, w.m, in, M);
      if (want.empty()) want = all;
      EXPECT_TRUE(same_bits(all, want));
      for (int32_t row : {0, 255, 511, 512, 529}) {
        const std::vector<float> alone = multiply(set.table.matmul_affine_int8, w.m, in, 1, {row});
        EXPECT_TRUE(same_bits(alone, rows_of(all, N + kSpare, row, 1))) << row;
        if (row != 512) continue;
        EXPECT_TRUE(same_bits(alone, multiply(reference_table().matmul_affine_int8, w.m, in, 1, {row})));
      }
    }
  }
}

TEST(MatmulAffineInt8, LargestCodesAndInputsDoNotSaturate) {
  std::mt19937 rng(4);
  for (int bits : kBits) {
    for (int group : kGroups) {
      const int K = 2 * group, N = 16;
      const std::vector<uint8_t> codes(static_cast<size_t>(N * K), static_cast<uint8_t>((1 << bits) - 1));
      const TestMatrix w = affine_matrix({bits, group}, N, K, true, codes, rng);
      for (int sign : {1, -1}) {
        TestInputs in(8, K, group, rng);
        std::fill(in.q.begin(), in.q.end(), static_cast<int8_t>(sign * 127));
        const std::vector<float> want = multiply(reference_table().matmul_affine_int8, w.m, in, 8);
        for (const KernelSet& set : kernel_sets()) {
          SCOPED_TRACE(::testing::Message() << set.name << ' ' << bits << " bits, group " << group);
          for (int M : {1, 8}) {
            ASSERT_TRUE(same_bits(multiply(set.table.matmul_affine_int8, w.m, in, M), rows_of(want, N + kSpare, 0, M)));
          }
        }
      }
    }
  }
}

TEST(MatmulAffineInt8, ARowIsTheSameAloneAtAnyPlaceAndInAnyTile) {
  std::mt19937 rng(5);
  const int K = 640, N = 77, M = 19;
  for (int bits : kBits) {
    const TestMatrix w = random_affine({bits, 64}, N, K, false, rng);
    const TestInputs in(M, K, 64, rng);
    std::vector<int32_t> order(M);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    for (const KernelSet& set : kernel_sets()) {
      SCOPED_TRACE(::testing::Message() << set.name << ' ' << bits << " bits");
      const Product product = set.table.matmul_affine_int8;
      const std::vector<float> all = multiply(product, w.m, in, M, order);
      for (int m = 0; m < M; ++m) {
        EXPECT_TRUE(same_bits(multiply(product, w.m, in, 1, {order[m]}), rows_of(all, N + kSpare, m, 1))) << m;
      }
      for (int split : {1, 2, 4}) {
        std::vector<float> joined = multiply(product, w.m, in, M, order, 0, split);
        const std::vector<float> right = multiply(product, w.m, in, M, order, split, w.m.panels());
        for (size_t i = 0; i < joined.size(); ++i) {
          const int n = static_cast<int>(i) % (N + kSpare);
          EXPECT_EQ((n < 16 * split ? right : joined)[i], kUntouched);  // a tile writes its own columns only
          if (n >= 16 * split) joined[i] = right[i];
        }
        EXPECT_TRUE(same_bits(joined, all)) << split;
      }
    }
  }
}

TEST(MatmulAffineInt8, AFaultyRowLeavesItsNeighboursAlone) {
  std::mt19937 rng(6);
  const TestMatrix w = random_affine({4, 64}, 32, 128, false, rng);
  TestInputs in(9, 128, 64, rng);
  const std::vector<float> want = multiply(reference_table().matmul_affine_int8, w.m, in, 9);
  in.scale[4 * 2 + 1] = std::numeric_limits<float>::quiet_NaN();
  for (const KernelSet& set : kernel_sets()) {
    SCOPED_TRACE(set.name);
    const std::vector<float> y = multiply(set.table.matmul_affine_int8, w.m, in, 9);
    EXPECT_TRUE(same_bits(rows_of(y, 52, 0, 4), rows_of(want, 52, 0, 4)));
    EXPECT_TRUE(same_bits(rows_of(y, 52, 5, 4), rows_of(want, 52, 5, 4)));
    EXPECT_TRUE(std::isnan(y[4 * 52]) && std::isnan(y[4 * 52 + 31]));
  }
}

}  // namespace
}  // namespace tutti::kernels
