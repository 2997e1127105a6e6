#include "schedule/share.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <vector>

namespace tutti::schedule {
namespace {

std::vector<int> share(std::vector<int> wants, int budget) {
  std::vector<PromptShare> prompts;
  for (const int want : wants) prompts.push_back({.want = want});
  share_tokens(prompts, budget);
  std::vector<int> given;
  for (const PromptShare& p : prompts) given.push_back(p.given);
  return given;
}

using Ints = std::vector<int>;

TEST(ShareTokens, half_for_the_oldest_half_for_the_shortest) {
  EXPECT_EQ(share({1000}, 100), Ints({100}));
  EXPECT_EQ(share({1000, 1000}, 100), Ints({50, 50}));
  EXPECT_EQ(share({1000, 500, 20}, 100), Ints({50, 30, 20}));
  EXPECT_EQ(share({10, 1000, 20}, 100), Ints({10, 70, 20}));
  EXPECT_EQ(share({1000, 10, 10}, 100), Ints({80, 10, 10}));
  EXPECT_EQ(share({1000, 10}, 1), Ints({1, 0}));
  EXPECT_EQ(share({5, 5}, 0), Ints({0, 0}));
}

TEST(ShareTokens, lower_levels_come_first) {
  std::vector<PromptShare> prompts{{.want = 60, .level = -1}, {.want = 500, .level = 0}, {.want = 5, .level = 0}};
  share_tokens(prompts, 100);
  EXPECT_EQ(prompts[0].given, 60);
  EXPECT_EQ(prompts[1].given, 35);
  EXPECT_EQ(prompts[2].given, 5);
}

RC_GTEST_PROP(ShareTokensProperty, spends_all_and_never_starves_the_oldest, ()) {
  const auto wants = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 500)));
  const int budget = *rc::gen::inRange(1, 1000);
  const Ints given = share(wants, budget);
  const int total = std::accumulate(wants.begin(), wants.end(), 0);
  RC_ASSERT(std::accumulate(given.begin(), given.end(), 0) == std::min(budget, total));
  RC_ASSERT(given[0] >= std::min(wants[0], (budget + 1) / 2));
  for (size_t i = 0; i < wants.size(); ++i) RC_ASSERT(given[i] >= 0 && given[i] <= wants[i]);
}

}  // namespace
}  // namespace tutti::schedule
