#include <gtest/gtest.h>

#include "kernels/per_isa.h"

namespace tutti::kernels::test {
namespace {

using Elementwise = PerIsa;

std::vector<float> sweep(float from, float to, float step) {
  std::vector<float> out;
  for (float x = from; x < to; x += step) out.push_back(x);
  return out;
}

// exp(x) as attention_merge uses it: an old sum of 1 whose maximum lies x below the new one.
float exp_of(const KernelTable& t, float x) {
  float m = x, l = 1, part_m = 0, part_l = 0;
  t.attention_merge({&m, &l, nullptr}, {&part_m, &part_l, nullptr}, 1, 0);
  return l;
}

TEST_P(Elementwise, ExpIsWithinTwoUlps) {
  for (float x = -87; x <= 0; x += 0.0137f) {
    const double want = std::exp(static_cast<double>(x));
    const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    ASSERT_LE(std::fabs(exp_of(kernels(), x) - want), 2 * ulp) << x;
  }
  EXPECT_EQ(exp_of(kernels(), 0), 1);
  EXPECT_EQ(exp_of(kernels(), -200), 0);
  EXPECT_NEAR(exp_of(kernels(), -100), 3.8e-44f, 1e-44f);  // gradual underflow
}

TEST_P(Elementwise, SiluAndSigmoidAgreeWithTheReference) {
  const std::vector<float> x = sweep(-120, 120, 0.0371f), one(x.size(), 1.0f);
  std::vector<float> got(x.size()), want(x.size());
  kernels().silu_mul(x.data(), one.data(), static_cast<int64_t>(x.size()), got.data());
  reference().silu_mul(x.data(), one.data(), static_cast<int64_t>(x.size()), want.data());
  expect_near(got, want, 1e-35, 6 * kEps);
  kernels().sigmoid_mul(one.data(), x.data(), static_cast<int64_t>(x.size()), got.data());
  reference().sigmoid_mul(one.data(), x.data(), static_cast<int64_t>(x.size()), want.data());
  expect_near(got, want, 1e-37, 6 * kEps);
}

TEST_P(Elementwise, TheEndsOfTheRangeAreLimits) {
  const std::vector<float> gate = {-1e4f, 1e4f, -kInf, kInf, 0}, one(5, 2.0f);
  std::vector<float> y(5);
  kernels().sigmoid_mul(one.data(), gate.data(), 5, y.data());
  EXPECT_EQ(y, (std::vector<float>{0, 2, 0, 2, 1}));
  kernels().silu_mul(gate.data(), one.data(), 2, y.data());
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 2e4f);
}

TEST_P(Elementwise, NanStaysNan) {
  const std::vector<float> gate = {1, kNan, 1}, one(3, 1.0f);
  std::vector<float> y(3);
  kernels().silu_mul(gate.data(), one.data(), 3, y.data());
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_FALSE(std::isnan(y[0]) || std::isnan(y[2]));
  kernels().sigmoid_mul(one.data(), gate.data(), 3, y.data());
  EXPECT_TRUE(std::isnan(y[1]));
}

TEST_P(Elementwise, AddScaledAgreesWithTheReference) {
  for (int n : {1, 15, 16, 33, 1000}) {
    const std::vector<float> x = normal(static_cast<size_t>(n), 1);
    std::vector<float> got = normal(static_cast<size_t>(n), 2), want = got;
    kernels().add_scaled(x.data(), 0.3f, n, got.data());
    reference().add_scaled(x.data(), 0.3f, n, want.data());
    expect_near(got, want, 2 * kEps, 2 * kEps);
  }
}

TEST_P(Elementwise, AnElementDoesNotDependOnItsPlaceNorWriteBeyondTheEnd) {
  constexpr size_t kN = 45;
  const std::vector<float> a = normal(kN, 3, 4), b = normal(kN, 4, 4);
  std::vector<float> silu(kN), sigmoid(kN), scaled = b;
  kernels().silu_mul(a.data(), b.data(), kN, silu.data());
  kernels().sigmoid_mul(a.data(), b.data(), kN, sigmoid.data());
  kernels().add_scaled(a.data(), 0.7f, kN, scaled.data());
  for (size_t i = 0; i < kN; ++i) {
    float y[2] = {0, 7};
    kernels().silu_mul(&a[i], &b[i], 1, y);
    EXPECT_EQ(bits(y, 1), bits(&silu[i], 1));
    kernels().sigmoid_mul(&a[i], &b[i], 1, y);
    EXPECT_EQ(bits(y, 1), bits(&sigmoid[i], 1));
    y[0] = b[i];
    kernels().add_scaled(&a[i], 0.7f, 1, y);
    EXPECT_EQ(bits(y, 1), bits(&scaled[i], 1));
    EXPECT_EQ(y[1], 7);
  }
}

TUTTI_FOR_EACH_ISA(Elementwise);

}  // namespace
}  // namespace tutti::kernels::test
