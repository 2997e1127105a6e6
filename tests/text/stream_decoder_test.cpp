#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "text/text_fixture.h"

namespace tutti::text {
namespace {

const std::string kMultilingual =
    "aé<ß 中文 🇻🇳👩🏽‍💻 สวัสดี हिन्दी \u0301 𝟘 \u07ff\uffff\U0010ffff.";
const std::string kReplacement = "\xEF\xBF\xBD";

std::string assembled(const std::vector<std::string>& pieces) {
  Utf8Assembler assembler;
  std::string out;
  for (const std::string& piece : pieces) {
    std::string text = assembler.push(piece);
    EXPECT_TRUE(text.empty() || (static_cast<unsigned char>(text[0]) & 0xC0) != 0x80) << "begins inside a character";
    out += text;
  }
  return out + assembler.finish();
}

std::vector<std::string> random_split(const std::string& text, std::mt19937& rng) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    size_t n = std::min<size_t>(rng() % 4, text.size() - at);
    pieces.push_back(text.substr(at, n));
    at += n;
  }
  return pieces;
}

TEST(Utf8Assembler, EverySplitInTwoGivesTheSameText) {
  for (size_t i = 0; i <= kMultilingual.size(); ++i) {
    EXPECT_EQ(assembled({kMultilingual.substr(0, i), kMultilingual.substr(i)}), kMultilingual);
  }
}

TEST(Utf8Assembler, EveryRandomSplitGivesTheSameText) {
  std::mt19937 rng(1);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(assembled(random_split(kMultilingual, rng)), kMultilingual);
}

TEST(Utf8Assembler, WholeCharactersAreNotHeldBack) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.push("a\xC3"), "a");
  EXPECT_EQ(assembler.push("\xA9"), "é");
  EXPECT_EQ(assembler.push("\xF0\x9F\x87"), "");
  EXPECT_EQ(assembler.push("\xBB!"), "🇻!");
}

// One U+FFFD per maximal subpart, as Python's and Rust's decoders do.
TEST(Utf8Assembler, BrokenBytesBecomeReplacementCharacters) {
  auto r = [](int n) {
    std::string s;
    while (n-- > 0) s += kReplacement;
    return s;
  };
  EXPECT_EQ(assembled({"a\x80z"}), "a" + r(1) + "z");
  EXPECT_EQ(assembled({"\xC0\x80"}), r(2)) << "overlong";
  EXPECT_EQ(assembled({"\xE0\x80\x80"}), r(3)) << "overlong";
  EXPECT_EQ(assembled({"\xED\xA0\x80"}), r(3)) << "surrogate";
  EXPECT_EQ(assembled({"\xF4\x90\x80\x80"}), r(4)) << "above U+10FFFF";
  EXPECT_EQ(assembled({"\xF0\x9F\x98z"}), r(1) + "z") << "cut short";
  EXPECT_EQ(assembled({"\xE4\xB8\xE4\xB8\xAD"}), r(1) + "中");
  EXPECT_EQ(assembled({"\xFF\xFE"}), r(2));
  EXPECT_EQ(assembled({"\xF0\x9F\x98"}), r(1)) << "left over at the end";
}

TEST(Utf8Assembler, BrokenBytesGiveTheSameTextInEverySplit) {
  std::mt19937 rng(2);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes;
    for (int n = rng() % 12; n > 0; --n) bytes += "az\x80\xBF\xA0\x90\xC3\xE0\xED\xF0\xF4\xFF"[rng() % 12];
    EXPECT_EQ(assembled(random_split(bytes, rng)), assembled({bytes}));
  }
}

// Ids of valid text, in any split of the text into encoded parts, come out as the text.
TEST(Utf8Assembler, TokensOfMultilingualTextNeverBreakACharacter) {
  std::mt19937 rng(3);
  for (int i = 0; i < 50; ++i) {
    std::vector<std::string> bytes;
    for (TokenId id : canary_tokenizer()->encode(kMultilingual, false)) {
      for (std::string& piece : random_split(canary_tokenizer()->token_bytes(id), rng)) bytes.push_back(piece);
    }
    EXPECT_EQ(assembled(bytes), kMultilingual);
  }
}

struct Stopped {
  std::string text;
  std::string stop;  // empty: none
  bool operator==(const Stopped&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Stopped& s) {
  return out << "{" << s.text << "|" << s.stop << "}";
}

Stopped run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces, bool include = false) {
  StopMatcher matcher(stops, include);
  Stopped result;
  for (const std::string& piece : pieces) result.text += matcher.push(piece);
  result.text += matcher.finish();
  if (matcher.match()) result.stop = matcher.match()->stop;
  return result;
}

// The rule as it reads, on the whole text.
Stopped naive(const std::vector<std::string>& stops, const std::string& text, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop) && stop.size() > best.size()) best = stop;
    }
    if (!best.empty()) return {text.substr(0, include ? end : end - best.size()), best};
  }
  return {text, ""};
}

TEST(StopMatcher, CutsBeforeTheStop) {
  EXPECT_EQ(run({"END"}, {"some text END more"}), (Stopped{"some text ", "END"}));
}

TEST(StopMatcher, IncludesTheStopWhenAsked) {
  EXPECT_EQ(run({"END"}, {"some text EN", "D more"}, true), (Stopped{"some text END", "END"}));
}

TEST(StopMatcher, TheMatchThatEndsFirstWins) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}), (Stopped{"xa", "bc"}));
  EXPECT_EQ(run({"bc", "abcd"}, {"xa", "bcd"}), (Stopped{"xa", "bc"}));
}

TEST(StopMatcher, OfThoseEndingTogetherTheLongestWins) {
  EXPECT_EQ(run({"c", "abc", "bc"}, {"xabc"}), (Stopped{"x", "abc"}));
}

TEST(StopMatcher, HoldsBackOnlyWhatMightBeAStop) {
  StopMatcher matcher({"\n\nQ:"}, false);
  EXPECT_EQ(matcher.push("answer\n"), "answer");
  EXPECT_EQ(matcher.push("\n"), "");
  EXPECT_EQ(matcher.push("\n"), "\n");
  EXPECT_EQ(matcher.push("R"), "\n\nR");
  EXPECT_EQ(matcher.push("x\n\nQ"), "x");
  EXPECT_EQ(matcher.finish(), "\n\nQ");
}

TEST(StopMatcher, DropsEverythingAfterAMatch) {
  StopMatcher matcher({"b"}, false);
  EXPECT_EQ(matcher.push("abc"), "a");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_EQ(matcher.match()->stop, "b");
}

TEST(StopMatcher, WithoutStopsNothingIsHeld) {
  StopMatcher matcher({"", ""}, false);
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_FALSE(matcher.match());
}

TEST(StopMatcher, SelfOverlappingStops) {
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b"}), (Stopped{"a", "aab"}));
  EXPECT_EQ(run({"abab", "abac"}, {"ababab"}), (Stopped{"", "abab"}));
}

// Any stops, any text, any split: the rule applied to the whole text.
TEST(StopMatcher, EqualsTheRuleInEverySplit) {
  std::mt19937 rng(4);
  auto word = [&](int longest) {
    std::string s;
    for (int n = 1 + rng() % longest; n > 0; --n) s += "abé"[rng() % 4];
    return s;
  };
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::string> stops;
    for (int n = rng() % 4; n > 0; --n) stops.push_back(word(5));
    std::string text = word(20);
    bool include = rng() % 2;
    EXPECT_EQ(run(stops, random_split(text, rng), include), naive(stops, text, include)) << text;
  }
}

}  // namespace
}  // namespace tutti::text
