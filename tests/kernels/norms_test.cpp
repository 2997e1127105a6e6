#include <gtest/gtest.h>

#include "kernels/per_isa.h"

namespace tutti::kernels::test {
namespace {

using Norms = PerIsa;
constexpr int kSizes[] = {1, 3, 15, 16, 17, 64, 127, 128, 255, 1024, 2560, 5120};

// Half of the error of a sum of squares over 16 or more lanes, and a few roundings after it.
double relative_error(int n) {
  return kEps * (n / 32.0 + 12);
}

TEST_P(Norms, RmsNormHasTheValuesOfTheSpec) {
  const std::vector<float> x = {1, -2, 3, 4}, gamma = {1.1f, 0.8f, 1, 1.3f};
  std::vector<float> y(4);
  kernels().rms_norm(x.data(), gamma.data(), 1e-6f, 1, 4, y.data());
  expect_near(y, {0.40166318f, -0.58423736f, 1.09544504f, 1.89877141f}, 2e-7);
}

TEST_P(Norms, GatedRmsNormHasTheValuesOfTheSpec) {
  const std::vector<float> o = {1, -2, 3, 4}, z = {.5f, -1, 2, 0}, gamma = {1, 1.5f, .5f, 2};
  std::vector<float> y(4);
  kernels().gated_rms_norm(o.data(), z.data(), gamma.data(), 1e-6f, 1, 4, y.data());
  expect_near(y, {.113645f, .29461055f, .96486479f, 0}, 3e-7);
}

TEST_P(Norms, L2NormHasTheValuesOfTheSpec) {
  std::vector<float> x = {3, 4, 0, 0};
  kernels().l2_norm(x.data(), 4, 1, 4, 1);
  expect_near(x, {.6f, .8f, 0, 0}, 1e-7);
  x = {3, 4, 0, 0};
  kernels().l2_norm(x.data(), 4, 1, 4, 0.5f);
  expect_near(x, {.3f, .4f, 0, 0}, 1e-7);
  x = {1e-3f, 0, 0, 0};  // the epsilon is added to the sum, not to the mean
  kernels().l2_norm(x.data(), 4, 1, 4, 1);
  EXPECT_NEAR(x[0], .70710678f, 1e-6);
}

TEST_P(Norms, AgreeWithTheReferenceAtEverySize) {
  for (int n : kSizes) {
    SCOPED_TRACE(n);
    const size_t size = static_cast<size_t>(3) * static_cast<size_t>(n);
    const std::vector<float> x = normal(size, 1, 3), z = normal(size, 2, 2), gamma = normal(static_cast<size_t>(n), 3);
    std::vector<float> got(size), want(size);
    kernels().rms_norm(x.data(), gamma.data(), 1e-6f, 3, n, got.data());
    reference().rms_norm(x.data(), gamma.data(), 1e-6f, 3, n, want.data());
    expect_near(got, want, 0, relative_error(n));
    kernels().gated_rms_norm(x.data(), z.data(), gamma.data(), 1e-6f, 3, n, got.data());
    reference().gated_rms_norm(x.data(), z.data(), gamma.data(), 1e-6f, 3, n, want.data());
    expect_near(got, want, 0, relative_error(n) + 4 * kEps);
    got = want = x;
    kernels().l2_norm(got.data(), n, 3, n, 0.25f);
    reference().l2_norm(want.data(), n, 3, n, 0.25f);
    expect_near(got, want, 0, relative_error(n));
  }
}

TEST_P(Norms, ARowIsTheSameAloneAndInABatch) {
  for (int n : {5, 128, 1023}) {
    SCOPED_TRACE(n);
    constexpr size_t kRows = 5;
    const size_t width = static_cast<size_t>(n);
    const std::vector<float> x = normal(kRows * width, 4), z = normal(kRows * width, 5), gamma = normal(width, 6);
    std::vector<float> rms(x.size()), gated(x.size()), l2 = x, one(width);
    kernels().rms_norm(x.data(), gamma.data(), 1e-6f, kRows, n, rms.data());
    kernels().gated_rms_norm(x.data(), z.data(), gamma.data(), 1e-6f, kRows, n, gated.data());
    kernels().l2_norm(l2.data(), n, kRows, n, 0.5f);
    for (size_t r = 0; r < kRows; ++r) {
      const size_t at = r * width;
      kernels().rms_norm(&x[at], gamma.data(), 1e-6f, 1, n, one.data());
      EXPECT_EQ(bits(one), bits(&rms[at], width));
      kernels().gated_rms_norm(&x[at], &z[at], gamma.data(), 1e-6f, 1, n, one.data());
      EXPECT_EQ(bits(one), bits(&gated[at], width));
      one.assign(&x[at], &x[at] + width);
      kernels().l2_norm(one.data(), 0, 1, n, 0.5f);
      EXPECT_EQ(bits(one), bits(&l2[at], width));
    }
  }
}

TEST_P(Norms, WorkInPlaceAndLeaveWhatLiesBetweenTheRows) {
  const std::vector<float> x = normal(2 * 37, 7), gamma = normal(37, 8);
  std::vector<float> apart(x.size()), in_place = x;
  kernels().rms_norm(x.data(), gamma.data(), 1e-6f, 2, 37, apart.data());
  kernels().rms_norm(in_place.data(), gamma.data(), 1e-6f, 2, 37, in_place.data());
  EXPECT_EQ(bits(apart), bits(in_place));

  std::vector<float> spaced(50, 7.0f);
  kernels().l2_norm(spaced.data(), 25, 2, 21, 1);
  for (int i : {21, 22, 23, 24, 46, 47, 48, 49}) EXPECT_EQ(spaced[static_cast<size_t>(i)], 7.0f);
  EXPECT_NE(spaced[45], 7.0f);
}

TEST_P(Norms, ARowOfZerosStaysZero) {
  std::vector<float> x(20, 0.0f), gamma(20, 1.0f), y(20, 1.0f);
  kernels().rms_norm(x.data(), gamma.data(), 1e-6f, 1, 20, y.data());
  EXPECT_EQ(bits(y), bits(x));
  kernels().l2_norm(x.data(), 20, 1, 20, 1);
  EXPECT_EQ(bits(y), bits(x));
}

TUTTI_FOR_EACH_ISA(Norms);

}  // namespace
}  // namespace tutti::kernels::test
