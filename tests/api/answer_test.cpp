#include "api/answer.h"

#include <gtest/gtest.h>

#include "api/canary.h"

namespace tutti::api {
namespace {

using schedule::FinishReason;

// Ids of text in which the canary's control tokens are tokens.
std::vector<TokenId> ids(std::string_view text) {
  return canary_tokenizer()->encode(text, true);
}

AnswerOptions chat_options(bool in_reasoning) {
  return {.parse_reasoning = true,
          .in_reasoning = in_reasoning,
          .think_open = canary_id("<think>"),
          .think_close = canary_id("</think>"),
          .end_ids = {canary_id("<|im_end|>"), canary_id("<|endoftext|>")}};
}

struct Outcome {
  std::string reasoning, content, ending;
  int64_t tokens = 0, reasoning_tokens = 0;
  std::vector<TokenId> ids, reasoning_entries, content_entries;
  bool must_abort = false;
};

std::string describe(const std::optional<Ending>& ending) {
  if (!ending) return "none";
  std::string out = ending->length ? "length" : "stop";
  if (const auto* text = std::get_if<std::string>(&ending->reason)) out += ":" + *text;
  if (const auto* id = std::get_if<TokenId>(&ending->reason)) out += "#" + std::to_string(*id);
  return out;
}

// The tokens, then the end: `last` finishes with it, as the engine does.
Outcome run(const AnswerOptions& options, const std::vector<TokenId>& tokens,
            FinishReason finish = FinishReason::stop) {
  Answer answer(options, canary_tokenizer());
  Delta all;
  for (size_t i = 0; i < tokens.size(); ++i) {
    engine::Event event{.token = tokens[i]};
    event.logprobs = sample::Logprobs{.chosen = {.token = tokens[i]}};
    if (i + 1 == tokens.size()) {
      event.finish = finish;
      if (finish == FinishReason::stop) event.stop_token = tokens[i];
    }
    answer.take(event, all);
  }
  Outcome out{all.reasoning.text, all.content.text,          describe(answer.ending()),
              answer.tokens(),    answer.reasoning_tokens(), all.ids};
  out.must_abort = answer.must_abort();
  for (const auto& entry : all.reasoning.entries) out.reasoning_entries.push_back(entry.values.chosen.token);
  for (const auto& entry : all.content.entries) out.content_entries.push_back(entry.values.chosen.token);
  return out;
}

TEST(Answer, splits_reasoning_at_the_closing_token) {
  const auto o = run(chat_options(true), ids("Let me think.\n</think>\n\nThe answer.<|im_end|>"));
  EXPECT_EQ(o.reasoning, "Let me think.");
  EXPECT_EQ(o.content, "The answer.");
  EXPECT_EQ(o.ending, "stop");
  EXPECT_EQ(o.tokens, static_cast<int64_t>(o.ids.size()));
  EXPECT_EQ(o.reasoning_tokens, static_cast<int64_t>(ids("Let me think.\n</think>").size()));
}

TEST(Answer, without_open_reasoning_all_is_content) {
  const auto o = run(chat_options(false), ids("The answer.<|im_end|>"));
  EXPECT_EQ(o.reasoning, "");
  EXPECT_EQ(o.content, "The answer.");
  EXPECT_EQ(o.reasoning_tokens, 0);
}

TEST(Answer, a_second_opening_tag_is_dropped) {
  EXPECT_EQ(run(chat_options(true), ids("<think>\nhm\n</think>\n\nyes<|im_end|>")).reasoning, "hm");
  EXPECT_EQ(run(chat_options(true), ids("a<think>b</think>yes<|im_end|>")).reasoning, "a<think>b");
}

TEST(Answer, reasoning_that_the_model_opens_itself) {
  const auto o = run(chat_options(false), ids("\n<think>\nhm\n</think>\n\nyes<|im_end|>"));
  EXPECT_EQ(o.reasoning, "hm");
  EXPECT_EQ(o.content, "yes");
  const auto blank = run(chat_options(false), ids("<think>\n\n</think>\n\nyes<|im_end|>"));
  EXPECT_EQ(blank.reasoning, "");
  EXPECT_EQ(blank.content, "yes");
}

TEST(Answer, only_the_first_closing_tag_closes) {
  const auto o = run(chat_options(true), ids("a</think>b</think>c<think>d<|im_end|>"));
  EXPECT_EQ(o.reasoning, "a");
  EXPECT_EQ(o.content, "b</think>c<think>d");
}

TEST(Answer, cut_inside_reasoning) {
  const auto o = run(chat_options(true), ids("still thinking\n"), FinishReason::length);
  EXPECT_EQ(o.reasoning, "still thinking");
  EXPECT_EQ(o.content, "");
  EXPECT_EQ(o.ending, "length");
}

TEST(Answer, end_token_inside_reasoning_has_a_reason_of_its_own) {
  EXPECT_EQ(run(chat_options(true), ids("thinking<|im_end|>")).ending, "stop:eos_in_reasoning");
}

TEST(Answer, stop_ids_are_named_and_not_shown) {
  AnswerOptions options = chat_options(false);
  const auto tokens = ids("one two");
  const auto o = run(options, tokens);
  EXPECT_EQ(o.ending, "stop#" + std::to_string(tokens.back()));
  EXPECT_EQ(o.content, "one");
  EXPECT_EQ(run(chat_options(true), tokens).ending, "stop#" + std::to_string(tokens.back()));
}

TEST(Answer, special_tokens_are_skipped_unless_wanted) {
  AnswerOptions options = chat_options(false);
  const auto tokens = ids("a<|im_start|>b<|im_end|>");
  EXPECT_EQ(run(options, tokens).content, "ab");
  options.skip_special_tokens = false;
  EXPECT_EQ(run(options, tokens).content, "a<|im_start|>b");
}

TEST(Answer, ignored_end_tokens_neither_end_nor_show) {
  AnswerOptions options = chat_options(false);
  options.ignore_eos = true;
  options.skip_special_tokens = false;
  const auto o = run(options, ids("a<|im_end|>b"), FinishReason::length);
  EXPECT_EQ(o.content, "ab");
  EXPECT_EQ(o.ending, "length");
}

TEST(Answer, stop_strings_look_at_content_only) {
  AnswerOptions options = chat_options(true);
  options.stops = {"stop here"};
  const auto tokens = ids("stop here</think>\n\ngo on, stop here and more<|im_end|>");
  const auto o = run(options, tokens);
  EXPECT_EQ(o.reasoning, "stop here");
  EXPECT_EQ(o.content, "go on, ");
  EXPECT_EQ(o.ending, "stop:stop here");
  EXPECT_TRUE(o.must_abort);
  EXPECT_LT(o.tokens, static_cast<int64_t>(tokens.size()));
  // Nothing after the token that completed the match leaves a trace.
  EXPECT_EQ(o.ids, std::vector<TokenId>(tokens.begin(), tokens.begin() + o.tokens));
  const auto upto = canary_tokenizer()->token_bytes(o.ids.back());
  EXPECT_NE(std::string("stop here").find(upto.substr(upto.find_first_not_of(' '))), std::string::npos);
}

TEST(Answer, stop_strings_wait_for_min_tokens) {
  AnswerOptions options = chat_options(false);
  options.stops = {"a"};
  const auto tokens = ids("a b a b<|im_end|>");
  options.min_tokens = 3;
  const auto o = run(options, tokens);
  EXPECT_EQ(o.content, "a b ");
}

TEST(Answer, stop_completed_by_the_last_token_needs_no_abort) {
  AnswerOptions options = chat_options(false);
  options.stops = {"end"};
  const auto o = run(options, ids("the end"), FinishReason::length);
  EXPECT_EQ(o.content, "the ");
  EXPECT_EQ(o.ending, "stop:end");
  EXPECT_FALSE(o.must_abort);
}

TEST(Answer, log_probabilities_follow_the_text) {
  const auto tokens = ids("x y\n</think>\n\nz w<|im_end|>");
  const auto o = run(chat_options(true), tokens);
  const auto joined = [](const std::vector<TokenId>& list) {
    std::string bytes;
    for (TokenId id : list) bytes += canary_tokenizer()->token_bytes(id);
    return bytes;
  };
  EXPECT_EQ(joined(o.reasoning_entries), "x y");
  EXPECT_EQ(joined(o.content_entries), "z w");
}

TEST(Answer, events_after_the_end_change_nothing) {
  AnswerOptions options = chat_options(false);
  options.stops = {"b"};
  Answer answer(options, canary_tokenizer());
  Delta all;
  for (TokenId id : ids("a b c d")) answer.take({.token = id}, all);
  const auto tokens = answer.tokens();
  answer.take({.token = ids("e")[0], .finish = FinishReason::abort}, all);
  EXPECT_EQ(answer.tokens(), tokens);
  EXPECT_EQ(all.content.text, "a ");
}

TEST(Answer, repetition_ends_the_row) {
  AnswerOptions options = chat_options(false);
  options.repetition = {.min_pattern_size = 2, .max_pattern_size = 3, .min_count = 3};
  const auto a = ids("A")[0], b = ids("B")[0], c = ids("C")[0];
  auto o = run(options, {a, b, c, a, b, a, b, a, b, a, b}, FinishReason::length);
  EXPECT_EQ(o.ending, "stop:repetition_detected");
  EXPECT_EQ(o.tokens, 9);
  EXPECT_TRUE(o.must_abort);
  EXPECT_EQ(run(options, {a, a, a, a, a}, FinishReason::length).ending, "length");  // six make "AA" three times
  EXPECT_EQ(run(options, {a, a, a, a, a, a, b}, FinishReason::length).tokens, 6);
}

TEST(RepetitionDetector, equals_the_plain_definition) {
  const RepetitionDetection rule{.min_pattern_size = 1, .max_pattern_size = 4, .min_count = 3};
  uint32_t state = 1;
  for (int round = 0; round < 200; ++round) {
    RepetitionDetector detector(rule);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525u + 1013904223u;
      tokens.push_back(static_cast<TokenId>((state >> 16) % 2));
      bool expected = false;
      for (size_t p = 1; p <= 4; ++p) {
        if (tokens.size() < 3 * p) continue;
        bool same = true;
        for (size_t k = tokens.size() - 2 * p; k < tokens.size(); ++k) same &= tokens[k] == tokens[k - p];
        expected |= same;
      }
      ASSERT_EQ(detector.push(tokens.back()), expected) << round << " " << i;
      if (expected) break;
    }
  }
}

TEST(Answer, completions_take_everything_as_content) {
  AnswerOptions options = chat_options(true);
  options.parse_reasoning = false;
  options.in_reasoning = false;
  const auto o = run(options, ids("\nthinking</think>\n\nx<|im_end|>"));
  EXPECT_EQ(o.content, "\nthinking</think>\n\nx");
  EXPECT_EQ(o.reasoning_tokens, 0);
}

}  // namespace
}  // namespace tutti::api
