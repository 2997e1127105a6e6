#include "sample/numeric.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace tutti::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_row(size_t n, uint32_t seed, float spread = 4) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

TEST(Scan, FindsTheFirstMaximum) {
  for (size_t n : {1u, 15u, 16u, 17u, 255u, 256u, 257u, 1000u}) {
    std::vector<float> x = random_row(n, static_cast<uint32_t>(n));
    const size_t at = n / 2;
    x[at] = 100;
    x[n - 1] = 100;
    const Scan s = scan(x);
    EXPECT_EQ(s.argmax, static_cast<int>(at));
    EXPECT_EQ(s.max, 100);
    EXPECT_TRUE(s.finite);
  }
}

TEST(Scan, SeesEveryNanAndInfinity) {
  for (float bad : {std::nanf(""), -std::nanf(""), kInf}) {
    for (size_t at : {0u, 15u, 16u, 255u, 256u, 299u}) {
      std::vector<float> x = random_row(300, 1);
      x[at] = bad;
      EXPECT_FALSE(scan(x).finite) << bad << " at " << at;
    }
  }
}

TEST(Scan, MinusInfinityIsAMask) {
  std::vector<float> x(300, -kInf);
  EXPECT_TRUE(scan(x).finite);
  EXPECT_EQ(scan(x).argmax, -1);
  x[299] = -1e30f;
  EXPECT_EQ(scan(x).argmax, 299);
}

TEST(Exp, MatchesTheLibraryWithinTwoUlp) {
  std::vector<float> x, y;
  for (double v = 0; v > -87; v -= 0.00137) x.push_back(static_cast<float>(v));
  y.resize(x.size());
  exp_nonpositive(x, y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i], exact, exact * 2.4e-7) << x[i];
  }
}

TEST(Exp, EdgesAreExact) {
  const std::vector<float> x = {0, -0.0f, -kInf, -200, -3e38f};
  std::vector<float> y(x.size());
  exp_nonpositive(x, y.data());
  EXPECT_EQ(y, (std::vector<float>{1, 1, 0, 0, 0}));
}

TEST(Sums, MatchDoublePrecision) {
  for (size_t n : {1u, 16u, 255u, 256u, 257u, 5000u}) {
    const std::vector<float> x = random_row(n, 7);
    const float max = *std::max_element(x.begin(), x.end());
    double exact = 0;
    for (float v : x) exact += std::exp(static_cast<double>(v) - max);
    EXPECT_NEAR(sum_exp(x, max), exact, exact * 1e-6);

    std::vector<float> positive(n);
    for (size_t i = 0; i < n; ++i) positive[i] = std::abs(x[i]);
    std::vector<double> sums;
    const double total = block_sums(positive, sums);
    EXPECT_EQ(sums.size(), (n + kSumBlock - 1) / kSumBlock);
    EXPECT_NEAR(total, std::accumulate(positive.begin(), positive.end(), 0.0), total * 1e-6);
  }
}

TEST(SelectTop, EqualsAStableSort) {
  EXPECT_TRUE(rc::check("select_top against a stable sort", [] {
    // Few distinct values, so that ties are everywhere; some masked.
    const auto small = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(-6, 7)));
    const size_t repeat = static_cast<size_t>(*rc::gen::inRange(1, 40));
    std::vector<float> x;
    for (size_t r = 0; r < repeat; ++r)
      for (int v : small) x.push_back(v == -6 ? -kInf : static_cast<float>(v) + static_cast<float>(r % 3) * 0.25f);
    const int k = *rc::gen::inRange(1, static_cast<int>(x.size()) + 3);

    std::vector<int> expected;
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] > -kInf) expected.push_back(static_cast<int>(i));
    std::stable_sort(expected.begin(), expected.end(), [&](int a, int b) { return x[a] > x[b]; });
    if (expected.size() > static_cast<size_t>(k)) expected.resize(static_cast<size_t>(k));
    std::vector<int> got;
    select_top(x, k, got);
    RC_ASSERT(got == expected);
    for (size_t i = 0; i < std::min<size_t>(got.size(), 5); ++i)
      RC_ASSERT(rank_of(x, got[i]) == static_cast<int>(i) + 1);
  }));
}

}  // namespace
}  // namespace tutti::sample
