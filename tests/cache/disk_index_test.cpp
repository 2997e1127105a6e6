#include "cache/disk_index.h"

#include <gtest/gtest.h>

namespace tutti::cache {
namespace {

EntryName block(uint64_t key) {
  return {.kind = EntryName::Kind::block, .key = {{key}}, .tokens = std::vector<TokenId>(64, 1)};
}
EntryName state(uint64_t parent, std::vector<TokenId> tail) {
  return {.kind = EntryName::Kind::state, .key = {{parent}}, .tokens = std::move(tail)};
}

TEST(DiskIndex, FindsWhatIsThere) {
  DiskIndex index;
  index.add("a", 10, 1, block(1));
  index.add("b", 20, 2, state(1, {5, 6}));
  index.add("c", 20, 3, state(1, {5}));
  index.add("d", 5, 4, std::nullopt);  // of another identity
  EXPECT_TRUE(index.has("d"));
  EXPECT_TRUE(index.has_block({{1}}));
  EXPECT_FALSE(index.has_block({{2}}));
  const std::vector<TokenId> tokens{5, 6, 7}, others{5, 7};
  EXPECT_EQ(index.longest_state({{1}}, tokens), (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(index.longest_state({{1}}, others), (std::vector<TokenId>{5}));
  EXPECT_EQ(index.longest_state({{1}}, std::span(others).subspan(1)), std::nullopt);
  EXPECT_EQ(index.longest_state({{2}}, tokens), std::nullopt);
  EXPECT_EQ(index.bytes(), 55);
  EXPECT_EQ(index.size(), 4);
}

TEST(DiskIndex, WhatWasUsedLongestAgoIsTheOldest) {
  DiskIndex index;
  EXPECT_EQ(index.oldest(), std::nullopt);
  index.add("a", 1, 1, block(1));
  index.add("b", 1, 2, block(2));
  index.add("c", 1, 2, std::nullopt);
  EXPECT_EQ(index.oldest(), "a");
  index.touch("a", 9);
  EXPECT_EQ(index.oldest(), "b");
  index.touch("none", 9);
  index.remove("b");
  index.remove("c");
  EXPECT_EQ(index.oldest(), "a");
}

TEST(DiskIndex, WhatIsRemovedIsGone) {
  DiskIndex index;
  index.add("a", 10, 1, block(1));
  index.add("b", 20, 2, state(1, {5, 6}));
  index.add("b", 30, 2, state(1, {5, 6}));  // again
  EXPECT_EQ(index.bytes(), 40);
  index.remove("a");
  index.remove("b");
  index.remove("b");
  const std::vector<TokenId> tokens{5, 6, 7};
  EXPECT_FALSE(index.has_block({{1}}));
  EXPECT_EQ(index.longest_state({{1}}, tokens), std::nullopt);
  EXPECT_EQ(index.bytes(), 0);
  EXPECT_TRUE(index.file_names().empty());
}

}  // namespace
}  // namespace tutti::cache
