#include "engine/draft_pace.h"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

// Runs steps whose time per token depends on the rows and guesses; how often each number of guesses was chosen after a
// while.
std::vector<int> chosen(double none, double one, double three, int rows) {
  DraftPace pace(3);
  std::vector<int> counts(4, 0);
  for (int step = 0; step < 3000; ++step) {
    const int drafts = pace.choose(rows);
    const double token_s = drafts == 0 ? none : drafts == 1 ? one : three;
    pace.observe(rows, 10, 10 * token_s);
    if (step >= 1000) ++counts[static_cast<size_t>(drafts)];
  }
  return counts;
}

TEST(DraftPace, WhatIsFastestIsChosen) {
  EXPECT_GT(chosen(1.0, 0.8, 0.6, 1)[3], 1900);
  EXPECT_GT(chosen(1.0, 0.7, 0.9, 4)[1], 1900);
  EXPECT_GT(chosen(1.0, 1.2, 1.4, 6)[0], 1900);
}

TEST(DraftPace, AFullStepIsNotEvenTried) {
  EXPECT_EQ(chosen(1.0, 0.1, 0.1, 32)[0], 2000);
  EXPECT_EQ(chosen(1.0, 0.5, 0.1, 12)[3], 0);
}

TEST(DraftPace, TheOthersAreTriedNowAndThen) {
  const auto counts = chosen(1.0, 0.8, 0.6, 1);
  EXPECT_GT(counts[0], 0);
  EXPECT_GT(counts[1], 0);
}

TEST(DraftPace, SizesOfBatchesAreJudgedApart) {
  DraftPace pace(3);
  for (int step = 0; step < 400; ++step) {
    for (const int rows : {1, 6}) {
      for (int i = 0; i < 3; ++i) {
        const int drafts = pace.choose(rows);
        pace.observe(rows, 10, rows == 1 ? 1.0 - 0.1 * drafts : 1.0 + 0.1 * drafts);
      }
    }
  }
  int alone = 0, many = 0;
  for (int i = 0; i < 100; ++i) alone += pace.choose(1), many += pace.choose(6);
  EXPECT_GT(alone, 250);
  EXPECT_LT(many, 50);
}

TEST(DraftPace, SlotsForTheMostThatAStepCanHold) {
  EXPECT_EQ(DraftPace::most_guesses(3, 64), 21);  // 7 rows of 3
  EXPECT_EQ(DraftPace::most_guesses(1, 64), 15);  // 15 rows of 1
  EXPECT_EQ(DraftPace::most_guesses(3, 2), 6);
  EXPECT_EQ(DraftPace::most_guesses(0, 64), 0);
}

TEST(DraftPace, WithoutGuessesThereIsNothingToChoose) {
  DraftPace pace(0);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(pace.choose(1), 0);
    pace.observe(1, 1, 1);
  }
}

}  // namespace
}  // namespace tutti::engine
