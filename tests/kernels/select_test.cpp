#include <gtest/gtest.h>

#include "kernels/per_isa.h"

namespace tutti::kernels::test {
namespace {

using Select = PerIsa;

TEST_P(Select, TopKHasTheValuesOfTheSpec) {
  const std::vector<float> logits = {1, 2, 0, 3};
  std::vector<int32_t> index(2);
  std::vector<float> weight(2);
  kernels().top_k_softmax(logits.data(), 4, 2, index.data(), weight.data());
  EXPECT_EQ(index, (std::vector<int32_t>{3, 1}));
  expect_near(weight, {.73105858f, .26894142f}, 1e-7);
}

TEST_P(Select, TopKAgreesWithTheReference) {
  for (auto [E, k] : {std::pair{4, 4}, {7, 1}, {64, 3}, {256, 8}, {512, 10}, {513, 17}}) {
    SCOPED_TRACE(E);
    const std::vector<float> logits = normal(static_cast<size_t>(E), static_cast<uint32_t>(k), 3);
    std::vector<int32_t> index(static_cast<size_t>(k)), want_index = index;
    std::vector<float> weight(static_cast<size_t>(k)), want = weight;
    kernels().top_k_softmax(logits.data(), E, k, index.data(), weight.data());
    reference().top_k_softmax(logits.data(), E, k, want_index.data(), want.data());
    EXPECT_EQ(index, want_index);
    expect_near(weight, want, 0, 24 * kEps);
  }
}

TEST_P(Select, TopKTakesTheLowerIndexAmongEquals) {
  const std::vector<float> logits = {0, 5, 5, 1, 5, 5, -1};
  std::vector<int32_t> index(3);
  std::vector<float> weight(3);
  kernels().top_k_softmax(logits.data(), 7, 3, index.data(), weight.data());
  EXPECT_EQ(index, (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(weight[0], weight[2]);
  const std::vector<float> extreme = {-1000, 1000, -kInf, 999};
  kernels().top_k_softmax(extreme.data(), 4, 3, index.data(), weight.data());
  EXPECT_EQ(index, (std::vector<int32_t>{1, 3, 0}));
  expect_near(weight, {.73105858f, .26894142f, 0}, 1e-7);
}

TEST_P(Select, ArgmaxFindsTheFirstMaximumWhereverItIs) {
  for (int V : {1, 2, 63, 1024, 1025, 5000}) {
    std::vector<float> x = normal(static_cast<size_t>(V), 1);
    for (int at = 0; at < V; at += 1 + V / 41) {
      std::vector<float> y = x;
      y[static_cast<size_t>(at)] = 50;
      y[static_cast<size_t>(V - 1)] = 50;
      ASSERT_EQ(kernels().argmax(y.data(), V), at);
    }
  }
}

TEST_P(Select, ArgmaxOfOddRows) {
  const std::vector<float> all(40, -kInf), nan(40, kNan);
  EXPECT_EQ(kernels().argmax(all.data(), 40), 0);
  EXPECT_EQ(kernels().argmax(nan.data(), 40), 0);
  std::vector<float> masked(40, -kInf);
  masked[33] = -3;
  EXPECT_EQ(kernels().argmax(masked.data(), 40), 33);
  masked[3] = kNan;  // never chosen while there is a number
  EXPECT_EQ(kernels().argmax(masked.data(), 40), 33);
}

TEST_P(Select, LogSumExpAgreesWithTheReference) {
  for (int V : {1, 2, 17, 1023, 1024, 1025, 20000}) {
    SCOPED_TRACE(V);
    const std::vector<float> x = normal(static_cast<size_t>(V), 3, 5);
    EXPECT_NEAR(kernels().log_sum_exp(x.data(), V), reference().log_sum_exp(x.data(), V), 3e-6);
  }
}

TEST_P(Select, LogSumExpKeepsTheLimits) {
  const std::vector<float> big(3, 1000.0f), masked = {-kInf, 2, -kInf}, all(3, -kInf), inf = {1, kInf, 2};
  EXPECT_NEAR(kernels().log_sum_exp(big.data(), 3), 1001.0986f, 1e-3);
  EXPECT_EQ(kernels().log_sum_exp(masked.data(), 3), 2);
  EXPECT_EQ(kernels().log_sum_exp(all.data(), 3), -kInf);
  EXPECT_EQ(kernels().log_sum_exp(inf.data(), 3), kInf);
  const std::vector<float> nan = {1, kNan, 2};
  EXPECT_TRUE(std::isnan(kernels().log_sum_exp(nan.data(), 3)));
}

TUTTI_FOR_EACH_ISA(Select);

}  // namespace
}  // namespace tutti::kernels::test
