#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "sample/naive.h"

namespace tutti::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_row(size_t n, uint32_t seed, float spread = 2) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0;
  return p;
}

TokenId one(const std::vector<float>& logits, const SamplingParams& p, uint64_t position = 0, int choice = 0) {
  Sampler sampler;
  return sampler.sample(logits, RowState(p, choice, {}), position).token;
}

std::vector<TokenId> many(const std::vector<float>& logits, const SamplingParams& p, int n, int choice = 0) {
  Sampler sampler;
  const RowState row(p, choice, {});
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(sampler.sample(logits, row, static_cast<uint64_t>(i)).token);
  return tokens;
}

// Pearson's statistic of draws against the exact distribution; rare tokens are pooled so that every cell expects ≥ 5.
// Returned as a z score by the Wilson-Hilferty approximation.
double chi_square_z(const std::vector<TokenId>& draws, const std::vector<naive::Entry>& exact) {
  std::map<TokenId, int> seen;
  for (TokenId t : draws) ++seen[t];
  double statistic = 0, pooled_expected = 0, pooled_seen = 0;
  int cells = 0, known = 0;
  for (const naive::Entry& e : exact) {
    const double expected = e.p * static_cast<double>(draws.size());
    known += seen[e.id];
    if (expected < 5) {
      pooled_expected += expected;
      pooled_seen += seen[e.id];
      continue;
    }
    statistic += (seen[e.id] - expected) * (seen[e.id] - expected) / expected;
    ++cells;
  }
  EXPECT_EQ(known, static_cast<int>(draws.size())) << "a token outside the distribution was drawn";
  if (pooled_expected > 1) {
    statistic += (pooled_seen - pooled_expected) * (pooled_seen - pooled_expected) / pooled_expected;
    ++cells;
  }
  const double freedom = std::max(1, cells - 1);
  return (std::cbrt(statistic / freedom) - (1 - 2 / (9 * freedom))) / std::sqrt(2 / (9 * freedom));
}

TEST(Greedy, MostLikelyTokenAndLowestIdOfATie) {
  EXPECT_EQ(one({1, 3, 2}, greedy()), 1);
  EXPECT_EQ(one({1, 3, 3}, greedy()), 1);
  SamplingParams p = greedy();
  p.top_k = 1;
  p.top_p = 0.1f;
  p.min_p = 1;
  p.temperature = 9e-6f;
  EXPECT_EQ(one({1, 3, 3}, p), 1);
}

TEST(Greedy, SeesPenaltiesAndMasks) {
  SamplingParams p = greedy();
  p.presence_penalty = 1.5f;
  RowState row(p, 0, std::vector<TokenId>{1, 1});
  Sampler sampler;
  EXPECT_EQ(sampler.sample(std::vector<float>{2, 3}, row, 2).token, 1);  // prompt tokens carry no presence penalty
  row.accept(1);
  EXPECT_EQ(sampler.sample(std::vector<float>{2, 3}, row, 3).token, 0);
  EXPECT_EQ(row.generated(), 1);
}

TEST(Greedy, FrequencyGrowsWithEveryToken) {
  SamplingParams p = greedy();
  p.frequency_penalty = 0.5f;
  RowState row(p, 0, {});
  Sampler sampler;
  std::vector<TokenId> tokens;
  for (int i = 0; i < 6; ++i) {
    tokens.push_back(sampler.sample(std::vector<float>{2, 3.1f}, row, static_cast<uint64_t>(i)).token);
    row.accept(tokens.back());
  }
  EXPECT_EQ(tokens, (std::vector<TokenId>{1, 1, 1, 0, 1, 0}));
}

TEST(Greedy, RepetitionCountsThePrompt) {
  SamplingParams p = greedy();
  p.repetition_penalty = 2;
  Sampler sampler;
  EXPECT_EQ(sampler.sample(std::vector<float>{2, 3}, RowState(p, 0, std::vector<TokenId>{1}), 1).token, 0);
  RowState row(p, 0, {});
  EXPECT_EQ(sampler.sample(std::vector<float>{2, 3}, row, 0).token, 1);
  row.accept(1);
  EXPECT_EQ(sampler.sample(std::vector<float>{2, 3}, row, 1).token, 0);
}

TEST(Greedy, LogitBiasRequiresAndBans) {
  std::vector<float> logits = random_row(500, 3);
  SamplingParams p = greedy();
  p.logit_bias = {{77, 100.0f}};
  EXPECT_EQ(one(logits, p), 77);
  const TokenId best = one(logits, greedy());
  p.logit_bias = {{best, -100.0f}};
  EXPECT_NE(one(logits, p), best);
}

TEST(Draw, LogitBiasRequiresAndBans) {
  const std::vector<float> logits = random_row(50, 3);
  SamplingParams p;
  p.logit_bias = {{7, 100.0f}};
  EXPECT_EQ(many(logits, p, 500), std::vector<TokenId>(500, 7));
  p.logit_bias = {{7, -100.0f}};
  for (TokenId t : many(logits, p, 2000)) ASSERT_NE(t, 7);
}

TEST(Draw, FollowsTheExactDistribution) {
  const std::vector<float> logits = random_row(1000, 11);
  SamplingParams plain, cold, top_k, top_p, min_p, mixed;
  cold.temperature = 0.6f;
  top_k.top_k = 20;
  top_p.top_p = 0.9f;
  min_p.min_p = 0.05f;
  mixed.temperature = 1.3f;
  mixed.top_k = 40;
  mixed.top_p = 0.95f;
  mixed.min_p = 0.02f;
  uint64_t seed = 1;
  for (SamplingParams p : {plain, cold, top_k, top_p, min_p, mixed}) {
    p.seed = ++seed;
    EXPECT_LT(chi_square_z(many(logits, p, 20000), naive::distribution(logits, p)), 3.5) << "seed " << seed;
  }
}

TEST(Draw, ChiSquareNoticesAWrongDistribution) {
  const std::vector<float> logits = random_row(1000, 11);
  SamplingParams drawn, claimed;
  drawn.top_k = claimed.top_k = 20;
  drawn.temperature = 1.1f;
  EXPECT_GT(chi_square_z(many(logits, drawn, 20000), naive::distribution(logits, claimed)), 3.5);
}

TEST(Draw, SeedsReproduceAndEveryKeyPartMatters) {
  const std::vector<float> logits = random_row(2000, 5);
  SamplingParams p;
  p.seed = 1234;
  EXPECT_EQ(many(logits, p, 200), many(logits, p, 200));
  EXPECT_NE(many(logits, p, 200, 0), many(logits, p, 200, 1));
  SamplingParams other = p;
  other.seed = 1235;
  EXPECT_NE(many(logits, p, 200), many(logits, other, 200));
}

TEST(Draw, DependsOnNothingThatTheSamplerDidBefore) {
  const std::vector<float> logits = random_row(700, 5), noise = random_row(3000, 6);
  SamplingParams p, busy;
  p.top_p = 0.9f;
  busy.top_k = 7;
  busy.logprobs = true;
  busy.top_logprobs = 20;
  busy.repetition_penalty = 1.5f;
  Sampler used;
  for (uint64_t position = 0; position < 50; ++position) {
    used.sample(noise, RowState(busy, 2, std::vector<TokenId>{1, 2, 3}), position);
    ASSERT_EQ(used.sample(logits, RowState(p, 0, {}), position).token, one(logits, p, position));
  }
}

TEST(Draw, FiltersThatRemoveNothingChangeNothing) {
  const std::vector<float> logits = random_row(200, 8);
  SamplingParams p, wide;
  wide.top_k = 200;
  wide.min_p = 1e-30f;
  EXPECT_EQ(many(logits, p, 300), many(logits, wide, 300));
}

TEST(Draw, MaskedAndPaddedIdsAreNeverDrawn) {
  std::vector<float> logits(300, -kInf);
  logits[5] = -20;
  logits[6] = -21;
  for (float temperature : {0.01f, 1.0f, 2.0f}) {
    SamplingParams p;
    p.temperature = temperature;
    for (TokenId t : many(logits, p, 500)) ASSERT_TRUE(t == 5 || t == 6);
  }
}

TEST(Draw, TinyTemperatureDoesNotOverflow) {
  SamplingParams p;
  p.temperature = 1e-5f;
  EXPECT_EQ(one({-3e38f, 3e38f, 1}, p), 1);
}

TEST(Draw, OneTokenVocabulary) {
  EXPECT_EQ(one({-5}, SamplingParams{}), 0);
}

TEST(Faults, NothingLegalIsLeft) {
  Sampler sampler;
  const std::vector<float> masked(100, -kInf), row = random_row(100, 1);
  SamplingParams p;
  for (float temperature : {0.0f, 1.0f}) {
    p.temperature = temperature;
    EXPECT_EQ(sampler.sample(masked, RowState(p, 0, {}), 0).fault, Fault::no_legal_token);
  }
  p.allowed = {3};
  p.blocked_early = {3};
  p.min_tokens = 1;
  for (float temperature : {0.0f, 1.0f}) {
    p.temperature = temperature;
    RowState state(p, 0, {});
    const Sampled s = sampler.sample(row, state, 0);
    EXPECT_EQ(s.fault, Fault::no_legal_token);
    EXPECT_EQ(s.token, -1);
    state.accept(9);
    EXPECT_EQ(sampler.sample(row, state, 1).token, 3);
  }
}

TEST(Faults, NonFiniteLogits) {
  for (float bad : {std::nanf(""), kInf}) {
    for (float temperature : {0.0f, 1.0f}) {
      std::vector<float> row = random_row(1000, 1);
      row[777] = bad;
      SamplingParams p;
      p.temperature = temperature;
      p.logprobs = true;
      Sampler sampler;
      const Sampled s = sampler.sample(row, RowState(p, 0, {}), 0);
      EXPECT_EQ(s.fault, Fault::non_finite_logits);
      EXPECT_EQ(s.token, -1);
      EXPECT_FALSE(s.logprobs.has_value());
    }
  }
}

}  // namespace
}  // namespace tutti::sample
