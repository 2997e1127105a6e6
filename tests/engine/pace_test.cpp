#include "engine/pace.h"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

using std::chrono::milliseconds;

TEST(Pace, begins_with_a_small_chunk) {
  Pace pace(milliseconds(250));
  EXPECT_LE(pace.token_budget(0), 64);
  EXPECT_GT(pace.token_budget(0), 0);
}

TEST(Pace, settles_on_the_tokens_that_fit_the_time) {
  Pace pace(milliseconds(250));
  for (int i = 0; i < 30; ++i) {
    const int tokens = pace.token_budget(0);
    pace.observe(0, tokens, 0.020 + tokens / 1000.0);  // 20 ms for the weights, 1 ms per token
  }
  EXPECT_NEAR(pace.token_budget(0), 230, 25);
}

TEST(Pace, leaves_room_for_the_decoding_rows) {
  Pace pace(milliseconds(250));
  for (int i = 0; i < 50; ++i) pace.observe(8, 0, 0.100);
  for (int i = 0; i < 50; ++i) pace.observe(8, 100, 0.200);  // 100 prompt tokens took 100 ms more
  EXPECT_NEAR(pace.token_budget(8), 8 + 150, 5);
}

TEST(Pace, a_slow_decode_step_lengthens_the_step) {
  Pace pace(milliseconds(250));
  for (int i = 0; i < 100; ++i) pace.observe(64, 0, 1.0);
  EXPECT_NEAR(pace.step_time(), 1.5, 0.01);
  for (int i = 0; i < 100; ++i) pace.observe(64, 100, 2.0);
  EXPECT_NEAR(pace.token_budget(64), 64 + 50, 5);
}

TEST(Pace, short_prompts_do_not_spoil_the_estimate) {
  Pace pace(milliseconds(250));
  for (int i = 0; i < 30; ++i) pace.observe(0, 1000, 0.250);
  const int before = pace.token_budget(0);
  for (int i = 0; i < 30; ++i) pace.observe(0, 4, 0.020);
  EXPECT_EQ(pace.token_budget(0), before);
}

TEST(Pace, a_step_over_its_time_shrinks_the_next) {
  Pace pace(milliseconds(250));
  for (int i = 0; i < 30; ++i) pace.observe(0, 1000, 0.250);
  for (int i = 0; i < 10; ++i) pace.observe(0, 100, 1.0);
  EXPECT_LT(pace.token_budget(0), 60);
}

}  // namespace
}  // namespace tutti::engine
