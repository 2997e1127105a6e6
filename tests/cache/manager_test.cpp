#include "cache/manager.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "base/error.h"

namespace tutti::cache {
namespace {

SequenceId seq(int n) {
  return SequenceId{n};
}

TEST(CacheManager, gives_blocks_as_tokens_come) {
  CacheManager caches({.blocks = 4, .slots = 2});
  EXPECT_TRUE(caches.reserve(seq(1), 1));
  EXPECT_EQ(caches.blocks(seq(1)).size(), 1u);
  EXPECT_TRUE(caches.reserve(seq(1), 64));
  EXPECT_EQ(caches.blocks(seq(1)).size(), 1u);
  EXPECT_TRUE(caches.reserve(seq(1), 65));
  EXPECT_EQ(caches.blocks(seq(1)).size(), 2u);
  EXPECT_EQ(caches.free_blocks(), 2);
  EXPECT_EQ(caches.free_slots(), 1);
  caches.check();
}

TEST(CacheManager, blocks_of_a_growing_sequence_stay_where_they_are) {
  CacheManager caches({.blocks = 8, .slots = 2});
  ASSERT_TRUE(caches.reserve(seq(1), 100));
  const std::vector<BlockId> before(caches.blocks(seq(1)).begin(), caches.blocks(seq(1)).end());
  const SlotId slot = caches.slot(seq(1));
  ASSERT_TRUE(caches.reserve(seq(2), 64));
  ASSERT_TRUE(caches.reserve(seq(1), 300));
  const auto after = caches.blocks(seq(1));
  ASSERT_EQ(after.size(), 5u);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
  EXPECT_EQ(caches.slot(seq(1)), slot);
  caches.check();
}

TEST(CacheManager, reserves_all_or_nothing) {
  CacheManager caches({.blocks = 3, .slots = 2});
  ASSERT_TRUE(caches.reserve(seq(1), 128));
  EXPECT_FALSE(caches.reserve(seq(2), 65));  // two blocks, one is left
  EXPECT_FALSE(caches.holds(seq(2)));
  EXPECT_EQ(caches.free_blocks(), 1);
  EXPECT_EQ(caches.free_slots(), 1);
  EXPECT_FALSE(caches.reserve(seq(1), 4 * 64));
  EXPECT_EQ(caches.blocks(seq(1)).size(), 2u);
  EXPECT_TRUE(caches.reserve(seq(1), 3 * 64));
  caches.check();
}

TEST(CacheManager, refuses_when_slots_run_out) {
  CacheManager caches({.blocks = 8, .slots = 1});
  ASSERT_TRUE(caches.reserve(seq(1), 1));
  EXPECT_FALSE(caches.reserve(seq(2), 1));
  EXPECT_EQ(caches.free_blocks(), 7);
  caches.release(seq(1));
  EXPECT_TRUE(caches.reserve(seq(2), 1));
  caches.check();
}

TEST(CacheManager, release_gives_everything_back_and_forgives_the_unknown) {
  CacheManager caches({.blocks = 4, .slots = 2});
  ASSERT_TRUE(caches.reserve(seq(1), 4 * 64));
  caches.release(seq(1));
  caches.release(seq(1));
  caches.release(seq(99));
  EXPECT_EQ(caches.free_blocks(), 4);
  EXPECT_EQ(caches.free_slots(), 2);
  EXPECT_TRUE(caches.blocks(seq(1)).empty());
  EXPECT_FALSE(caches.slot(seq(1)).valid());
  caches.check();
}

TEST(CacheManager, touched_memory_is_used_before_fresh_memory) {
  CacheManager caches({.blocks = 100, .slots = 4});
  ASSERT_TRUE(caches.reserve(seq(1), 3 * 64));
  caches.release(seq(1));
  ASSERT_TRUE(caches.reserve(seq(2), 3 * 64));
  for (const BlockId block : caches.blocks(seq(2))) EXPECT_LT(block.value, 3);
}

TEST(CacheManager, the_state_after_the_last_token_that_stays_becomes_the_sequences_own) {
  CacheManager caches({.blocks = 4, .slots = 2, .drafts = 4});
  ASSERT_TRUE(caches.reserve(seq(1), 10) && caches.reserve(seq(2), 10));
  for (int kept = 1; kept <= 4; ++kept) {
    ASSERT_TRUE(caches.plan_drafts(seq(1), 3));
    caches.check();
    EXPECT_FALSE(caches.plan_drafts(seq(2), 2));  // one is left
    const SlotId own = caches.slot(seq(1));
    const std::vector<SlotId> slots(caches.draft_slots(seq(1)).begin(), caches.draft_slots(seq(1)).end());
    ASSERT_EQ(slots.size(), 3u);
    caches.accept_drafts(seq(1), kept);
    caches.check();
    EXPECT_EQ(caches.slot(seq(1)), kept == 4 ? own : slots[static_cast<size_t>(kept) - 1]);
    EXPECT_TRUE(caches.draft_slots(seq(1)).empty());
  }
  ASSERT_TRUE(caches.plan_drafts(seq(1), 4));
  caches.release(seq(1));  // the step failed
  caches.check();
  EXPECT_TRUE(caches.plan_drafts(seq(2), 4));
}

TEST(CacheManager, an_empty_pool_is_refused) {
  EXPECT_THROW(CacheManager({.blocks = 0, .slots = 1}), InvariantError);
  EXPECT_THROW(CacheManager({.blocks = 1, .slots = 0}), InvariantError);
}

// Random operations against a naive model: counts only.
RC_GTEST_PROP(CacheManagerProperty, agrees_with_counting, ()) {
  const int blocks = *rc::gen::inRange(1, 20), slots = *rc::gen::inRange(1, 6);
  CacheManager caches({.blocks = blocks, .slots = slots});
  std::map<int, int> held;  // sequence → blocks
  const auto used = [&] {
    int n = 0;
    for (const auto& [s, b] : held) n += b;
    return n;
  };
  const auto operations = *rc::gen::container<std::vector<std::tuple<int, int>>>(
      rc::gen::tuple(rc::gen::inRange(0, 8), rc::gen::inRange(-100, 700)));
  for (const auto& [s, tokens] : operations) {
    if (tokens < 0) {
      caches.release(seq(s));
      held.erase(s);
    } else {
      const int have = held.contains(s) ? held[s] : 0, want = std::max(have, (tokens + 63) / 64);
      const bool fits = used() - have + want <= blocks && (held.contains(s) || static_cast<int>(held.size()) < slots);
      RC_ASSERT(caches.reserve(seq(s), tokens) == fits);
      if (fits) held[s] = want;
    }
    caches.check();
    RC_ASSERT(caches.free_blocks() == blocks - used());
    RC_ASSERT(caches.free_slots() == slots - static_cast<int>(held.size()));
    for (const auto& [h, b] : held) RC_ASSERT(static_cast<int>(caches.blocks(seq(h)).size()) == b);
  }
}

}  // namespace
}  // namespace tutti::cache
