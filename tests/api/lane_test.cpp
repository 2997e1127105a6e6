#include "api/lane.h"

#include <gtest/gtest.h>

namespace tutti::api {
namespace {

sample::Logprobs values(TokenId id) {
  return {.chosen = {.token = id}};
}

struct Result {
  std::string text;
  std::vector<TokenId> entries;     // tokens that have an entry, by number of the push
  std::vector<std::string> pieces;  // text after each push and after finish()
  std::vector<size_t> skips;
  std::vector<int64_t> offsets;
};

Result run(TextLane lane, const std::vector<std::string>& tokens) {
  Result result;
  Piece all;
  const auto take = [&](Piece& piece) {
    result.pieces.push_back(piece.text);
    all.append(std::move(piece));
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    Piece piece;
    lane.push(tokens[i], values(static_cast<TokenId>(i)), true, piece);
    take(piece);
    if (lane.match()) break;
  }
  Piece last;
  if (!lane.match()) lane.finish(last);
  take(last);
  result.text = all.text;
  for (const auto& entry : all.entries) {
    result.entries.push_back(entry.values.chosen.token);
    result.skips.push_back(entry.skip);
    result.offsets.push_back(entry.text_offset);
  }
  return result;
}

using Ids = std::vector<TokenId>;

TEST(TextLane, passes_text_and_entries) {
  const auto r = run(TextLane(Trim::none, {}, false), {"\nab", "c", "\n"});
  EXPECT_EQ(r.text, "\nabc\n");
  EXPECT_EQ(r.entries, (Ids{0, 1, 2}));
  EXPECT_EQ(r.offsets, (std::vector<int64_t>{0, 3, 4}));
}

TEST(TextLane, holds_back_half_characters) {
  const auto r = run(TextLane(Trim::none, {}, false), {"a\xf0\x9f", "\x98", "\x80", "z\xe2\x82"});
  EXPECT_EQ(r.pieces, (std::vector<std::string>{"a", "", "😀", "z", "\xef\xbf\xbd"}));
  EXPECT_EQ(r.entries, (Ids{0, 1, 2, 3}));
}

TEST(TextLane, opening_newlines_leave_no_entry) {
  const auto r = run(TextLane(Trim::opening, {}, false), {"\n", "\n\n", "a", "\n", "b"});
  EXPECT_EQ(r.text, "a\nb");
  EXPECT_EQ(r.entries, (Ids{2, 3, 4}));
  const auto cut = run(TextLane(Trim::opening, {}, false), {"\n\nab", "c"});
  EXPECT_EQ(cut.text, "abc");
  EXPECT_EQ(cut.skips, (std::vector<size_t>{2, 0}));
}

TEST(TextLane, both_takes_one_newline_at_each_end) {
  EXPECT_EQ(run(TextLane(Trim::both, {}, false), {"\n", "a", "\n"}).text, "a");
  EXPECT_EQ(run(TextLane(Trim::both, {}, false), {"\n\n", "a", "\n\n"}).text, "\na\n");
  EXPECT_EQ(run(TextLane(Trim::both, {}, false), {"a", "\n", "b", "\n"}).text, "a\nb");
  EXPECT_EQ(run(TextLane(Trim::both, {}, false), {"\n"}).text, "");
  EXPECT_EQ(run(TextLane(Trim::both, {}, false), {"\n", "\n"}).text, "");
  EXPECT_EQ(run(TextLane(Trim::both, {}, false), {"\n\n\n"}).text, "\n");
  EXPECT_EQ(run(TextLane(Trim::both, {}, false), {}).text, "");
  EXPECT_EQ(run(TextLane(Trim::both, {}, false), {"\n", "a", "\n"}).entries, (Ids{1}));
}

TEST(TextLane, stops_over_token_borders) {
  const auto r = run(TextLane(Trim::none, {"beta gamma"}, false), {"al", "pha be", "ta", " gam", "ma del", "ta"});
  EXPECT_EQ(r.text, "alpha ");
  EXPECT_EQ(r.entries, (Ids{0, 1}));
  EXPECT_EQ(run(TextLane(Trim::none, {"beta gamma"}, true), {"al", "pha be", "ta", " gam", "ma del", "ta"}).text,
            "alpha beta gamma");
}

TEST(TextLane, tokens_inside_a_cut_stop_leave_no_entry) {
  const auto r = run(TextLane(Trim::none, {"XYZ"}, false), {"a", "X", "Y", "Z"});
  EXPECT_EQ(r.text, "a");
  EXPECT_EQ(r.entries, (Ids{0}));
}

TEST(TextLane, text_held_for_a_stop_comes_at_the_end) {
  const auto r = run(TextLane(Trim::none, {"XYZ"}, false), {"a", "X", "Y"});
  EXPECT_EQ(r.pieces, (std::vector<std::string>{"a", "", "", "XY"}));
  EXPECT_EQ(r.entries, (Ids{0, 1, 2}));
}

TEST(TextLane, every_split_gives_the_same_text) {
  const std::string whole = "\n\nZwei Bäume 😀 und STO ein STOP hier\n";
  const std::vector<std::string> stops = {"STOP", "Baumhaus"};
  const auto expected = run(TextLane(Trim::opening, stops, false), {whole}).text;
  EXPECT_EQ(expected, "Zwei Bäume 😀 und STO ein ");
  for (size_t i = 0; i <= whole.size(); ++i) {
    for (size_t j = i; j <= whole.size(); ++j) {
      const std::vector<std::string> tokens = {whole.substr(0, i), whole.substr(i, j - i), whole.substr(j)};
      ASSERT_EQ(run(TextLane(Trim::opening, stops, false), tokens).text, expected) << i << " " << j;
    }
  }
}

TEST(TextLane, stops_are_not_looked_for_before_they_may) {
  TextLane lane(Trim::none, {"b"}, false);
  Piece out;
  lane.push("ab", std::nullopt, false, out);
  EXPECT_FALSE(lane.match());
  lane.push("cb", std::nullopt, true, out);
  EXPECT_TRUE(lane.match());
  EXPECT_EQ(out.text, "abc");
}

}  // namespace
}  // namespace tutti::api
