#include "run/shortlist.h"

#include <gtest/gtest.h>

#include <limits>

namespace tutti::run {
namespace {

constexpr int kVocab = 248'077;

TEST(Shortlist, ASmallVocabularyIsTakenWhole) {
  Shortlist list(1000);
  EXPECT_TRUE(list.all());
  list.add(std::vector<TokenId>{1, 2, 999});
  EXPECT_TRUE(list.ranges().empty());
  std::vector<float> logits(1010, 9);  // columns behind the vocabulary are no tokens
  std::fill_n(logits.begin(), 1000, 0.0f);
  logits[700] = logits[800] = 2;
  EXPECT_EQ(list.best(logits.data()), 700);
}

TEST(Shortlist, FrequentAndControlTokensAndWhatWasSaid) {
  Shortlist list(kVocab);
  ASSERT_FALSE(list.all());
  list.add(std::vector<TokenId>{5, 100'000, 100'001, 100'016, 200'000});
  const auto& ranges = list.ranges();
  ASSERT_EQ(ranges.size(), 4u);
  EXPECT_EQ(ranges[0].begin, 0);
  EXPECT_EQ(ranges[0].end, 1024);
  EXPECT_EQ(ranges[1].begin, 6250);  // 100,000 … 100,015 and 100,016 …
  EXPECT_EQ(ranges[1].end, 6252);
  EXPECT_EQ(ranges[2].begin, 12'500);
  EXPECT_EQ(ranges[3].begin, (kVocab - 512) / 16);
  EXPECT_EQ(ranges[3].end, (kVocab - 1) / 16 + 1);
  list.clear();
  EXPECT_EQ(list.ranges().size(), 2u);
}

TEST(Shortlist, TheBestIsLookedForInsideOnly) {
  Shortlist list(kVocab);
  list.add(std::vector<TokenId>{100'000});
  std::vector<float> logits(248'320, std::numeric_limits<float>::quiet_NaN());  // what is left out is undefined
  for (const auto& range : list.ranges())
    std::fill(logits.begin() + range.begin * 16, logits.begin() + range.end * 16, -1.0f);
  std::fill(logits.begin() + kVocab, logits.end(), 50.0f);  // no tokens
  logits[100'005] = 3;
  logits[kVocab - 1] = 3;
  EXPECT_EQ(list.best(logits.data()), 100'005);
  logits[16'383] = 3;
  EXPECT_EQ(list.best(logits.data()), 16'383);
}

TEST(Shortlist, OfALongRowTheLastTokens) {
  Shortlist list(kVocab);
  std::vector<TokenId> tokens(2000, 7);
  tokens.front() = 100'000;
  tokens.back() = 200'000;
  list.add(tokens);
  EXPECT_EQ(list.ranges().size(), 3u);
}

}  // namespace
}  // namespace tutti::run
