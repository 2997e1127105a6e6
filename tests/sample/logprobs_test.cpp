#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "sample/naive.h"
#include "sample/row_logprobs.h"
#include "sample/sampler.h"

namespace tutti::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_row(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

SamplingParams with_logprobs(int top) {
  SamplingParams p;
  p.temperature = 0;
  p.logprobs = true;
  p.top_logprobs = top;
  return p;
}

TEST(Logprobs, AreTheLogSoftmaxOfTheRawLogits) {
  const std::vector<float> row = random_row(3000, 1);
  SamplingParams p = with_logprobs(20);
  p.temperature = 0.7f;
  p.logit_bias = {{5, 100.0f}};  // decides the token, does not show in its logprob
  p.top_k = 3;
  Sampler sampler;
  const Sampled s = sampler.sample(row, RowState(p, 0, {}), 0);
  ASSERT_EQ(s.token, 5);
  const std::vector<naive::Entry> exact = naive::distribution(row, SamplingParams{});
  ASSERT_EQ(s.logprobs->top.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(s.logprobs->top[i].token, exact[i].id);
    EXPECT_NEAR(s.logprobs->top[i].logprob, std::log(exact[i].p), 2e-6);
    EXPECT_EQ(s.logprobs->top[i].rank, static_cast<int>(i) + 1);
  }
  for (size_t i = 0; i < exact.size(); ++i) {
    if (exact[i].id != 5) continue;
    EXPECT_EQ(s.logprobs->chosen.rank, static_cast<int>(i) + 1);
    EXPECT_NEAR(s.logprobs->chosen.logprob, std::log(exact[i].p), 2e-5);
  }
}

TEST(Logprobs, OnlyWhenAskedFor) {
  SamplingParams p;
  Sampler sampler;
  EXPECT_FALSE(sampler.sample(std::vector<float>{1, 2}, RowState(p, 0, {}), 0).logprobs.has_value());
  EXPECT_TRUE(sampler.sample(std::vector<float>{1, 2}, RowState(with_logprobs(0), 0, {}), 0).logprobs->top.empty());
}

TEST(Logprobs, TiesByLowerIdAlsoInTheRank) {
  Sampler sampler;
  const std::vector<float> row = {1, 2, 2, 2};
  const Logprobs l = sampler.logprobs_of(row, 2, 2);
  EXPECT_EQ(l.chosen.rank, 2);
  ASSERT_EQ(l.top.size(), 2u);
  EXPECT_EQ(l.top[0].token, 1);
  EXPECT_EQ(l.top[1].token, 2);
  EXPECT_EQ(l.top[0].logprob, l.top[1].logprob);
}

TEST(Logprobs, MinusInfinityIsWrittenAsSuch) {
  Sampler sampler;
  const Logprobs l = sampler.logprobs_of(std::vector<float>{0, -kInf, 0}, 1, 3);
  EXPECT_EQ(l.chosen.logprob, -kInf);
  EXPECT_EQ(l.chosen.rank, 3);
  ASSERT_EQ(l.top.size(), 2u);  // a token of probability zero is not listed
  EXPECT_FLOAT_EQ(l.top[0].logprob, std::log(0.5f));
  EXPECT_EQ(sampler.logprobs_of(std::vector<float>(4, -kInf), 0, 2).chosen.logprob, -kInf);
}

TEST(Logprobs, OneCertainTokenHasLogprobZero) {
  Sampler sampler;
  EXPECT_EQ(sampler.logprobs_of(std::vector<float>{500, 0}, 0, 0).chosen.logprob, 0);
  EXPECT_EQ(sampler.logprobs_of(std::vector<float>{500, 0}, 1, 0).chosen.logprob, -500);
}

TEST(Logprobs, NamedIdsReplaceTheTopList) {
  SamplingParams p = with_logprobs(5);
  p.logprob_ids = {2, 0, 9, 1};
  Sampler sampler;
  const std::vector<float> row = {1, 1, 3};
  const Sampled s = sampler.sample(row, RowState(p, 0, {}), 0);
  ASSERT_EQ(s.logprobs->top.size(), 4u);
  std::vector<TokenId> ids;
  for (const TokenLogprob& t : s.logprobs->top) ids.push_back(t.token);
  EXPECT_EQ(ids, (std::vector<TokenId>{2, 0, 1, 9}));
  EXPECT_EQ(s.logprobs->top[1].rank, 2);
  EXPECT_EQ(s.logprobs->top[3].logprob, -kInf);  // an id that the row does not have
}

TEST(Logprobs, PromptTokensAreReadFromTheSameDistribution) {
  const std::vector<float> row = random_row(1000, 4);
  Sampler sampler;
  const Sampled s = sampler.sample(row, RowState(with_logprobs(7), 0, {}), 0);
  const Logprobs l = sampler.logprobs_of(row, s.token, 7);
  EXPECT_EQ(l.chosen.logprob, s.logprobs->chosen.logprob);
  EXPECT_EQ(l.chosen.rank, 1);
  ASSERT_EQ(l.top.size(), s.logprobs->top.size());
  for (size_t i = 0; i < l.top.size(); ++i) EXPECT_EQ(l.top[i].logprob, s.logprobs->top[i].logprob);
}

}  // namespace
}  // namespace tutti::sample
