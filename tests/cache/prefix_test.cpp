// Prefixes in the manager: what is found, what is copied, what goes when memory is short.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "base/error.h"
#include "cache/manager.h"

namespace tutti::cache {
namespace {

using Ids = std::vector<TokenId>;

SequenceId seq(int id) {
  return SequenceId{id};
}

// `n` tokens that go on from `seed`.
Ids tokens(int n, int seed = 0) {
  Ids ids;
  for (int i = 0; i < n; ++i) ids.push_back(seed * 100'000 + i);
  return ids;
}

struct Text {
  explicit Text(Ids ids, std::string_view salt = "") : ids(std::move(ids)), chain(prefix_root(salt)) {
    chain.extend(this->ids);
  }
  Prefix prefix() const { return {chain, ids}; }
  int size() const { return static_cast<int>(ids.size()); }
  Ids ids;
  PrefixChain chain;
};

struct Shelf {
  explicit Shelf(ManagerOptions options) : caches(options) {}

  // A sequence that computes all of `text` in one step, with snapshots at `at`.
  void compute(int id, const Text& text, const std::vector<int>& at) {
    ASSERT_TRUE(caches.reserve(seq(id), text.size()));
    for (const int position : at) caches.plan_snapshot(seq(id), text.prefix(), position);
    caches.check();
    caches.commit(seq(id), text.prefix(), text.size());
    caches.check();
  }
  void release(int id) {
    caches.release(seq(id));
    caches.check();
  }
  int match(const Text& text) const { return caches.match_prefix(text.prefix(), text.size() - 1); }
  int restore(int id, const Text& text) {
    copies.clear();
    const int restored = caches.restore(seq(id), text.prefix(), text.size() - 1, copies);
    caches.check();
    return restored;
  }

  CacheManager caches;
  std::vector<Copy> copies;
};

TEST(PrefixCache, ARepetitionGoesOnFromTheLongestSnapshot) {
  Shelf shelf({.blocks = 10, .slots = 2, .snapshots = 4});
  const Text text(tokens(200));
  shelf.compute(1, text, {50, 128, 199});
  EXPECT_EQ(shelf.match(text), 199);
  EXPECT_EQ(shelf.match(Text(tokens(199))), 128);  // its last token must be computed
  EXPECT_EQ(shelf.match(Text(tokens(128))), 50);
  EXPECT_EQ(shelf.match(Text(tokens(50))), 0);
  Ids other = tokens(200);
  other[130] = 7;
  EXPECT_EQ(shelf.match(Text(other)), 128);
  other[127] = 7;
  EXPECT_EQ(shelf.match(Text(other)), 50);
  other[0] = 7;
  EXPECT_EQ(shelf.match(Text(other)), 0);
}

TEST(PrefixCache, RestoringSharesWholeBlocksAndCopiesWhatWillBeWritten) {
  Shelf shelf({.blocks = 10, .slots = 2, .snapshots = 4});
  const Text text(tokens(200));
  shelf.compute(1, text, {150});
  const std::vector<BlockId> first(shelf.caches.blocks(seq(1)).begin(), shelf.caches.blocks(seq(1)).end());
  ASSERT_EQ(shelf.restore(2, text), 150);
  const auto second = shelf.caches.blocks(seq(2));
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(second[0], first[0]);
  EXPECT_EQ(second[1], first[1]);
  EXPECT_NE(second[2], first[2]);
  ASSERT_EQ(shelf.copies.size(), 2u);
  EXPECT_EQ(shelf.copies[0], (Copy{Copy::What::block, first[2].value, second[2].value}));
  EXPECT_EQ(shelf.copies[1].what, Copy::What::slot);
  EXPECT_EQ(shelf.copies[1].to, shelf.caches.slot(seq(2)).value);
  EXPECT_NE(shelf.copies[1].from, shelf.caches.slot(seq(1)).value);
  shelf.release(1);
  shelf.release(2);
  EXPECT_EQ(shelf.caches.free_blocks(), 10);
}

TEST(PrefixCache, ABoundaryOnABlockCopiesNoBlock) {
  Shelf shelf({.blocks = 10, .slots = 2, .snapshots = 4});
  const Text text(tokens(200));
  shelf.compute(1, text, {128});
  ASSERT_EQ(shelf.restore(2, text), 128);
  ASSERT_EQ(shelf.copies.size(), 1u);
  EXPECT_EQ(shelf.copies[0].what, Copy::What::slot);
}

TEST(PrefixCache, SaltsSeparate) {
  Shelf shelf({.blocks = 10, .slots = 2, .snapshots = 4});
  shelf.compute(1, Text(tokens(100), "a"), {99});
  EXPECT_EQ(shelf.match(Text(tokens(100), "a")), 99);
  EXPECT_EQ(shelf.match(Text(tokens(100), "b")), 0);
  EXPECT_EQ(shelf.match(Text(tokens(100))), 0);
}

TEST(PrefixCache, NothingIsFoundBeforeTheStepIsCommitted) {
  Shelf shelf({.blocks = 10, .slots = 2, .snapshots = 4});
  const Text text(tokens(100));
  ASSERT_TRUE(shelf.caches.reserve(seq(1), 100));
  EXPECT_TRUE(shelf.caches.plan_snapshot(seq(1), text.prefix(), 90).valid());
  EXPECT_EQ(shelf.match(text), 0);
  shelf.release(1);  // the step failed
  EXPECT_EQ(shelf.match(text), 0);
  EXPECT_EQ(shelf.caches.cached_blocks(), 0);
}

TEST(PrefixCache, TheStateOfAnEndedSequenceBecomesASnapshot) {
  Shelf shelf({.blocks = 10, .slots = 1, .snapshots = 1});
  const Text text(tokens(100));
  shelf.compute(1, text, {});
  const SlotId slot = shelf.caches.slot(seq(1));
  shelf.caches.keep(seq(1), text.prefix(), 100);
  shelf.caches.check();
  const Text longer(tokens(120));
  ASSERT_EQ(shelf.restore(2, longer), 100);
  EXPECT_EQ(shelf.copies.back().from, slot.value);
}

TEST(PrefixCache, AStateThatNoStepHasWrittenIsNotKept) {
  Shelf shelf({.blocks = 10, .slots = 2, .snapshots = 4});
  const Text text(tokens(100));
  ASSERT_TRUE(shelf.caches.reserve(seq(1), 100));
  shelf.caches.keep(seq(1), text.prefix(), 100);
  shelf.caches.check();
  EXPECT_EQ(shelf.match(Text(tokens(120))), 0);
}

TEST(PrefixCache, TheSnapshotUsedLongestAgoGoesFirst) {
  Shelf shelf({.blocks = 10, .slots = 2, .snapshots = 2});
  const Text a(tokens(40, 1)), b(tokens(40, 2)), c(tokens(40, 3));
  shelf.compute(1, a, {39}), shelf.release(1);
  shelf.compute(2, b, {39}), shelf.release(2);
  EXPECT_EQ(shelf.restore(3, a), 39);  // now b is the older one
  shelf.release(3);
  shelf.compute(4, c, {39}), shelf.release(4);
  EXPECT_EQ(shelf.match(a), 39);
  EXPECT_EQ(shelf.match(b), 0);
  EXPECT_EQ(shelf.match(c), 39);
}

TEST(PrefixCache, ShortMemoryTakesTheEndOfAPrefixBeforeItsBeginning) {
  Shelf shelf({.blocks = 4, .slots = 2, .snapshots = 8});
  const Text text(tokens(256));
  shelf.compute(1, text, {64, 128, 192, 255}), shelf.release(1);
  EXPECT_EQ(shelf.match(text), 255);
  ASSERT_TRUE(shelf.caches.reserve(seq(2), 64));  // takes one block
  shelf.caches.check();
  EXPECT_LT(shelf.match(text), 255);
  EXPECT_GE(shelf.match(text), 128);
  ASSERT_TRUE(shelf.caches.reserve(seq(2), 256));
  shelf.caches.check();
  EXPECT_EQ(shelf.match(text), 0);
}

TEST(PrefixCache, ARestoreThatDoesNotFitChangesNothing) {
  Shelf shelf({.blocks = 4, .slots = 3, .snapshots = 4});
  const Text text(tokens(100));
  shelf.compute(1, text, {99}), shelf.release(1);
  ASSERT_TRUE(shelf.caches.reserve(seq(2), 128));  // two blocks are left, both are the prefix's
  EXPECT_EQ(shelf.match(text), 99);
  EXPECT_EQ(shelf.restore(3, text), 0);  // a copy of the second needs a third
  EXPECT_FALSE(shelf.caches.holds(seq(3)));
  EXPECT_TRUE(shelf.copies.empty());
}

TEST(PrefixCache, WithoutRecurrentLayersWholeBlocksAreEnough) {
  Shelf shelf({.blocks = 10, .slots = 2, .stateful = false});
  const Text text(tokens(200));
  shelf.compute(1, text, {});
  EXPECT_EQ(shelf.restore(2, text), 192);
  EXPECT_TRUE(shelf.copies.empty());
}

TEST(PrefixCache, ForgettingLeavesNothing) {
  Shelf shelf({.blocks = 10, .slots = 2, .snapshots = 4});
  const Text text(tokens(200));
  shelf.compute(1, text, {150}), shelf.release(1);
  shelf.caches.forget();
  shelf.caches.check();
  EXPECT_EQ(shelf.match(text), 0);
  EXPECT_EQ(shelf.caches.snapshots(), 0);
  EXPECT_EQ(shelf.caches.free_blocks(), 10);
}

// Random operations over a simulated memory: whatever is restored holds exactly the tokens of the prefix.
class Memory {
 public:
  Memory(int blocks, int slots, int snapshots)
      : caches_({.blocks = blocks, .slots = slots, .snapshots = snapshots}),
        keys_(static_cast<size_t>(blocks) * kBlockTokens, -1),
        states_(static_cast<size_t>(slots + snapshots)) {}

  // One step of a sequence: begun if it is new, `n` tokens computed, snapshots on the way.
  void step(int id, const Ids& text, int n, bool fails) {
    auto it = live_.find(id);
    std::vector<Copy> copies;
    if (it == live_.end()) {
      it = live_.emplace(id, Live{Text(text), 0}).first;
      it->second.computed = caches_.restore(seq(id), it->second.text.prefix(), it->second.text.size() - 1, copies);
    }
    Live& live = it->second;
    const int end = std::min(live.computed + n, live.text.size());
    if (!caches_.reserve(seq(id), end)) {
      caches_.release(seq(id));
      live_.erase(it);
      return;
    }
    std::vector<std::pair<int, SlotId>> emits;
    for (const int position : {end / 3, end / 2, end}) {
      if (position <= live.computed || (!emits.empty() && emits.back().first == position)) continue;
      const SlotId slot = caches_.plan_snapshot(seq(id), live.text.prefix(), position);
      if (slot.valid()) emits.emplace_back(position, slot);
    }
    caches_.check();
    for (const Copy& copy : copies) carry_out(copy);
    compute(live, id, end, emits);
    if (fails) {
      caches_.release(seq(id));
      live_.erase(it);
    } else {
      caches_.commit(seq(id), live.text.prefix(), live.computed = end);
      verify(live, id);
    }
    caches_.check();
  }

  void end(int id, bool keep) {
    const auto it = live_.find(id);
    if (it == live_.end()) return;
    if (keep)
      caches_.keep(seq(id), it->second.text.prefix(), it->second.computed);
    else
      caches_.release(seq(id));
    live_.erase(it);
    caches_.check();
  }

  int restored = 0;

 private:
  struct Live {
    Text text;
    int computed = 0;
  };

  void carry_out(const Copy& copy) {
    if (copy.what == Copy::What::slot) {
      states_[static_cast<size_t>(copy.to)] = states_[static_cast<size_t>(copy.from)];
      ++restored;
    } else {
      std::copy_n(keys_.begin() + copy.from * kBlockTokens, kBlockTokens, keys_.begin() + copy.to * kBlockTokens);
    }
  }

  void compute(const Live& live, int id, int end, const std::vector<std::pair<int, SlotId>>& emits) {
    Ids& state = states_[static_cast<size_t>(caches_.slot(seq(id)).value)];
    if (live.computed == 0) state.clear();
    for (int t = live.computed; t < end; ++t) {
      keys_[key_at(id, t)] = live.text.ids[static_cast<size_t>(t)];
      state.push_back(live.text.ids[static_cast<size_t>(t)]);
      for (const auto& [position, slot] : emits)
        if (position == t + 1) states_[static_cast<size_t>(slot.value)] = state;
    }
  }

  size_t key_at(int id, int t) const {
    const auto blocks = caches_.blocks(seq(id));
    return static_cast<size_t>(blocks[static_cast<size_t>(t / kBlockTokens)].value * kBlockTokens + t % kBlockTokens);
  }

  void verify(const Live& live, int id) const {
    const Ids expected(live.text.ids.begin(), live.text.ids.begin() + live.computed);
    RC_ASSERT(states_[static_cast<size_t>(caches_.slot(seq(id)).value)] == expected);
    for (int t = 0; t < live.computed; ++t) RC_ASSERT(keys_[key_at(id, t)] == expected[static_cast<size_t>(t)]);
  }

  CacheManager caches_;
  Ids keys_;
  std::vector<Ids> states_;
  std::map<int, Live> live_;
};

RC_GTEST_PROP(PrefixCacheProperty, whatever_is_restored_is_the_prefix, ()) {
  Memory memory(*rc::gen::inRange(4, 24), *rc::gen::inRange(1, 5), *rc::gen::inRange(0, 8));
  const auto moves = *rc::gen::container<std::vector<std::tuple<int, int, int, int>>>(rc::gen::tuple(
      rc::gen::inRange(0, 8), rc::gen::inRange(0, 6), rc::gen::inRange(1, 150), rc::gen::inRange(0, 10)));
  for (const auto& [id, kind, n, fork] : moves) {
    if (kind == 0) {
      memory.end(id, n % 2 == 0);
      continue;
    }
    // Ten texts that share beginnings of several lengths.
    Ids text = tokens(80 + 40 * (fork % 5));
    for (size_t i = static_cast<size_t>(30 * fork); i < text.size(); ++i) text[i] += 1'000'000 * fork;
    memory.step(id, text, n, kind == 1 && n % 5 == 0);
  }
}

}  // namespace
}  // namespace tutti::cache
