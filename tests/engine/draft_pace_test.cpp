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
    pace.observe(rows, drafts > 0 ? rows : 0, 10, 10 * token_s);
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
        pace.observe(rows, drafts > 0 ? rows : 0, 10, rows == 1 ? 1.0 - 0.1 * drafts : 1.0 + 0.1 * drafts);
      }
    }
  }
  int alone = 0, many = 0;
  for (int i = 0; i < 100; ++i) alone += pace.choose(1), many += pace.choose(6);
  EXPECT_GT(alone, 250);
  EXPECT_LT(many, 50);
}

// Steps whose rows did not guess, whatever was chosen, are as quick as without: that must not make guesses look quick.
TEST(DraftPace, RowsThatDoNotGuessSayNothingOfGuesses) {
  DraftPace pace(3);
  int chosen = 0;
  for (int step = 0; step < 3000; ++step) {
    const int drafts = pace.choose(4);
    const bool guess = drafts > 0 && step % 100 < 20;  // requests that want guesses, and such that don't, in turn
    pace.observe(4, guess ? 4 : 0, 10, guess ? 20.0 : 10.0 - 0.1 * drafts);
    if (step >= 1000) chosen += drafts > 0 ? 1 : 0;
  }
  EXPECT_LT(chosen, 100);
}

TEST(DraftPace, BesidePromptsNothingIsTriedOut) {
  DraftPace pace(3);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pace.choose(4, true), 0);  // nothing is known yet
  for (int i = 0; i < 1000; ++i) {
    const int drafts = pace.choose(4);
    pace.observe(4, drafts > 0 ? 4 : 0, 10, 10.0 - drafts);
  }
  for (int i = 0; i < 300; ++i) EXPECT_EQ(pace.choose(4, true), 3);
}

TEST(DraftPace, WhereNobodyEverGuessesNothingIsWaitedFor) {
  DraftPace pace(3);
  int last = -1;
  for (int step = 0; step < 500; ++step) {
    last = pace.choose(1);
    pace.observe(1, 0, 1, 1.0);
  }
  EXPECT_EQ(last, 0);
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
    pace.observe(1, 0, 1, 1);
  }
}

}  // namespace
}  // namespace tutti::engine
