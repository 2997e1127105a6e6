#include "sample/filters.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <map>
#include <set>

#include "sample/naive.h"

namespace tutti::sample {
namespace {

// A row's history as RowState keeps it.
struct History {
  History(std::vector<TokenId> prompt_tokens, std::vector<TokenId> output_tokens)
      : prompt(std::move(prompt_tokens)), output(std::move(output_tokens)) {
    std::map<TokenId, int> n;
    std::set<TokenId> all(prompt.begin(), prompt.end());
    for (TokenId t : output) ++n[t], all.insert(t);
    counts.assign(n.begin(), n.end());
    seen.assign(all.begin(), all.end());
  }
  std::vector<TokenId> prompt, output, seen;
  std::vector<std::pair<TokenId, int>> counts;
};

std::vector<float> edited(std::vector<float> logits, const SamplingParams& p, const History& h) {
  Work work{p, h.output, h.counts, h.seen, logits};
  apply_filters(Stage::logits, work);
  return logits;
}

// Ids and probabilities after the whole table.
std::map<int, double> drawable(std::vector<float> logits, const SamplingParams& p) {
  Work work{p, {}, {}, {}, logits};
  work.source = logits;
  work.max = *std::max_element(logits.begin(), logits.end());
  apply_filters(Stage::temperature, work);
  apply_filters(Stage::candidates, work);
  weigh(work);
  double sum = 0;
  for (float w : work.weights) sum += w;
  std::map<int, double> result;
  for (size_t i = 0; i < work.weights.size(); ++i)
    if (work.weights[i] > 0) result[work.all ? static_cast<int>(i) : work.ids[i]] = work.weights[i] / sum;
  return result;
}

std::set<int> drawable_ids(const std::vector<float>& logits, const SamplingParams& p) {
  std::set<int> ids;
  for (const auto& [id, probability] : drawable(logits, p)) ids.insert(id);
  return ids;
}

std::vector<float> log_of(const std::vector<double>& p) {
  std::vector<float> l;
  for (double v : p) l.push_back(static_cast<float>(std::log(v)));
  return l;
}

constexpr float kBanned = naive::kBanned;
constexpr int kVocab = 24;

rc::Gen<std::vector<TokenId>> tokens(int max) {
  return rc::gen::mapcat(rc::gen::inRange(0, max), [](int n) {
    return rc::gen::container<std::vector<TokenId>>(static_cast<size_t>(n), rc::gen::inRange(0, kVocab));
  });
}

float tenths(int low, int high) {
  return static_cast<float>(*rc::gen::inRange(low, high + 1)) / 10.0f;
}

TEST(FilterTable, OrderIsTheContract) {
  std::vector<std::string_view> names;
  for (const Filter& f : filters()) names.push_back(f.name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"logit_bias", "repetition_penalty", "presence_frequency", "allowed",
                                                  "constraint", "bad_words", "min_tokens", "temperature", "top_k",
                                                  "top_p", "min_p"}));
}

TEST(FilterTable, NothingIsActiveAtNeutralValues) {
  const SamplingParams neutral;
  EXPECT_FALSE(any_active(Stage::logits, neutral));
  EXPECT_FALSE(any_active(Stage::candidates, neutral));
}

TEST(LogitFilters, EqualTheNaiveOrder) {
  EXPECT_TRUE(rc::check("logit edits against the naive order", [] {
    SamplingParams p;
    p.repetition_penalty = tenths(5, 20);
    p.presence_penalty = tenths(-20, 20);
    p.frequency_penalty = tenths(-20, 20);
    for (TokenId t : *tokens(4)) p.logit_bias.emplace_back(t, tenths(-1000, 1000));
    p.allowed = *tokens(12);
    p.bad_words = *rc::gen::container<std::vector<std::vector<TokenId>>>(
        rc::gen::suchThat(tokens(4), [](const std::vector<TokenId>& w) { return !w.empty(); }));
    p.min_tokens = *rc::gen::inRange(0, 8);
    p.blocked_early = *tokens(3);
    const History h(*tokens(10), *tokens(10));
    std::vector<float> logits(kVocab);
    for (float& l : logits) l = tenths(-80, 80);

    std::vector<float> expected = logits;
    naive::edit(expected, p, h.prompt, h.output);
    RC_ASSERT(edited(logits, p, h) == expected);
  }));
}

TEST(LogitFilters, PresenceAndFrequencyCountGeneratedTokensOnly) {
  SamplingParams p;
  p.presence_penalty = 0.5f;
  p.frequency_penalty = 0.25f;
  EXPECT_EQ(edited({1, 1, 1}, p, History({0, 0, 2}, {1, 1, 2})), (std::vector<float>{1, 0, 0.25f}));
}

TEST(LogitFilters, RepetitionCountsThePromptToo) {
  SamplingParams p;
  p.repetition_penalty = 2;
  EXPECT_EQ(edited({4, -4, 4, 0}, p, History({0, 1}, {1, 3})), (std::vector<float>{2, -8, 4, 0}));
}

TEST(LogitFilters, BiasComesBeforeRepetition) {
  SamplingParams p;
  p.repetition_penalty = 2;
  p.logit_bias = {{0, 2.0f}};
  EXPECT_EQ(edited({-1, 5}, p, History({0}, {})), (std::vector<float>{0.5f, 5}));  // (-1 + 2) / 2, not -1 · 2 + 2
}

TEST(LogitFilters, ABiasCannotReviveABannedToken) {
  SamplingParams p;
  p.allowed = {1};
  p.logit_bias = {{0, 100.0f}};
  EXPECT_EQ(edited({1, 1}, p, History({}, {})), (std::vector<float>{kBanned, 1}));
}

TEST(LogitFilters, BadWordsOfOneAndOfSeveralTokens) {
  SamplingParams p;
  p.bad_words = {{0}, {1, 2}, {1, 1, 3}};
  const std::vector<float> row(5, 0.0f);
  EXPECT_EQ(edited(row, p, History({1}, {})), (std::vector<float>{kBanned, 0, 0, 0, 0}));  // the prompt doesn't count
  EXPECT_EQ(edited(row, p, History({}, {1})), (std::vector<float>{kBanned, 0, kBanned, 0, 0}));
  EXPECT_EQ(edited(row, p, History({}, {1, 1})), (std::vector<float>{kBanned, 0, kBanned, kBanned, 0}));
  EXPECT_EQ(edited(row, p, History({}, {1, 1, 4})), (std::vector<float>{kBanned, 0, 0, 0, 0}));
}

TEST(LogitFilters, MinTokensMasksUntilThatMany) {
  SamplingParams p;
  p.min_tokens = 2;
  p.blocked_early = {1};
  EXPECT_EQ(edited({0, 0}, p, History({0, 0, 0}, {0})), (std::vector<float>{0, kBanned}));
  EXPECT_EQ(edited({0, 0}, p, History({}, {0, 0})), (std::vector<float>{0, 0}));
}

TEST(LogitFilters, IdsOutsideTheRowAreIgnored) {
  SamplingParams p;
  p.logit_bias = {{-1, 1.0f}, {9, 1.0f}};
  p.allowed = {1, 9};
  p.repetition_penalty = 2;
  EXPECT_EQ(edited({4, 4}, p, History({9, 1}, {})), (std::vector<float>{kBanned, 2}));
}

TEST(LogitFilters, EditsNeverOverflow) {
  SamplingParams p;
  p.repetition_penalty = 1e-38f;
  EXPECT_TRUE(std::isfinite(edited({50, 1}, p, History({0}, {}))[0]));
}

TEST(CandidateFilters, EqualTheNaiveDistribution) {
  EXPECT_TRUE(rc::check("temperature and candidate filters against sorting in double precision", [] {
    SamplingParams p;
    p.temperature = tenths(1, 20);
    p.top_k = *rc::gen::inRange(-1, 60);
    p.min_p = *rc::gen::element(0.0f, 0.013f, 0.11f, 0.7f);
    p.top_p = *rc::gen::element(0.0f, 0.11f, 0.513f, 0.93f, 0.9917f, 1.0f);
    const int n = *rc::gen::inRange(1, 700);
    const uint32_t seed = *rc::gen::arbitrary<uint32_t>();
    std::vector<float> logits(static_cast<size_t>(n));
    for (size_t i = 0; i < logits.size(); ++i) {  // a grid of values: many ties
      const uint32_t h = (static_cast<uint32_t>(i) + seed) * 2654435761u >> 16;
      logits[i] = h % 11 == 0 ? kBanned : static_cast<float>(h % 160) / 8.0f;
    }
    if (std::all_of(logits.begin(), logits.end(), [](float l) { return l == kBanned; })) logits[0] = 1;

    const std::vector<naive::Entry> expected = naive::distribution(logits, p);
    const std::map<int, double> got = drawable(logits, p);
    std::map<int, double> want;
    for (const naive::Entry& e : expected)
      if (e.p > 1e-30) want[e.id] = e.p;
    RC_ASSERT(got.size() >= want.size());
    for (const auto& [id, probability] : want) {
      RC_ASSERT(got.count(id) == 1u);
      RC_ASSERT(std::abs(got.at(id) - probability) <= 2e-6 * probability + 1e-12);
    }
    for (const auto& [id, probability] : got) RC_ASSERT(want.count(id) == 1u || probability < 1e-29);
  }));
}

TEST(TopP, SmallestSetThatReachesTheMass) {
  const std::vector<float> l = log_of({0.1, 0.5, 0.3, 0.1});
  SamplingParams p;
  p.top_p = 0.49f;
  EXPECT_EQ(drawable_ids(l, p), (std::set<int>{1}));
  p.top_p = 0.51f;
  EXPECT_EQ(drawable_ids(l, p), (std::set<int>{1, 2}));
  p.top_p = 0.79f;
  EXPECT_EQ(drawable_ids(l, p), (std::set<int>{1, 2}));
  p.top_p = 0.81f;
  EXPECT_EQ(drawable_ids(l, p), (std::set<int>{0, 1, 2}));  // a tie at the border: the lower id
}

TEST(TopP, ExactMassIsEnough) {
  SamplingParams p;
  p.top_p = 0.5f;
  EXPECT_EQ(drawable_ids({3, 3, 3, 3}, p), (std::set<int>{0, 1}));
}

TEST(TopP, ZeroKeepsTheMostLikely) {
  SamplingParams p;
  p.top_p = 0;
  EXPECT_EQ(drawable_ids({1, 7, 7, 2}, p), (std::set<int>{1}));
}

TEST(TopP, IsTakenOfTheDistributionAfterTopK) {
  // 0.4, 0.3, 0.3: after top_k 2 the first has 4/7 of the mass.
  SamplingParams p;
  p.top_k = 2;
  p.top_p = 0.5f;
  EXPECT_EQ(drawable_ids(log_of({0.3, 0.4, 0.3}), p), (std::set<int>{1}));
}

TEST(TopP, FlatRowsOfTheWholeVocabulary) {
  const std::vector<float> flat(5000, 1.5f);
  SamplingParams p;
  p.top_p = 0.25f;
  const std::set<int> ids = drawable_ids(flat, p);
  EXPECT_EQ(ids.size(), 1250u);
  EXPECT_EQ(*ids.rbegin(), 1249);
}

TEST(TopK, TiesByLowerId) {
  SamplingParams p;
  p.top_k = 2;
  EXPECT_EQ(drawable_ids({1, 2, 2, 2}, p), (std::set<int>{1, 2}));
}

TEST(MinP, IsRelativeToTheMostLikelyAfterTemperature) {
  SamplingParams p;
  p.min_p = 0.3f;
  const std::vector<float> l = log_of({0.6, 0.24, 0.16});  // ratios 1, 0.4, 0.27
  EXPECT_EQ(drawable_ids(l, p), (std::set<int>{0, 1}));
  p.temperature = 2;  // ratios 1, 0.63, 0.52
  EXPECT_EQ(drawable_ids(l, p), (std::set<int>{0, 1, 2}));
}

TEST(CandidateFilters, AFullyMaskedRowHasNoCandidates) {
  SamplingParams p;
  p.top_k = 3;
  p.top_p = 0.5f;
  p.min_p = 0.1f;
  EXPECT_TRUE(drawable_ids(std::vector<float>(40, kBanned), p).empty());
}

}  // namespace
}  // namespace tutti::sample
