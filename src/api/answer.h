// One choice of an answer: the engine's events in, reasoning and content out. Streams and whole answers use the same
// machine, so that they can't differ. One thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/lane.h"
#include "api/sampling_fields.h"
#include "engine/stream.h"
#include "text/tokenizer.h"

namespace tutti::api {

struct AnswerOptions {
  bool parse_reasoning = false;  // chat; completions take everything as content
  bool in_reasoning = false;     // the prompt ends in an open <think>
  TokenId think_open = -1, think_close = -1;
  std::vector<TokenId> end_ids;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::vector<std::string> stops;
  bool include_stop = false;
  int64_t min_tokens = 0;  // stop strings are not looked for before
  RepetitionDetection repetition;
};

// What some events added to the answer.
struct Delta {
  Piece reasoning, content;
  std::vector<TokenId> ids;
  bool empty() const { return reasoning.empty() && content.empty(); }
  void clear();
  void append(Delta&& other);
};

struct Ending {
  bool length = false;                                        // else "stop"
  std::variant<std::monostate, std::string, TokenId> reason;  // stop_reason
};

// Finds a tail that is one pattern of p tokens, min_count times in a row.
class RepetitionDetector {
 public:
  explicit RepetitionDetector(const RepetitionDetection& rule);
  bool push(TokenId token);  // true: found

 private:
  RepetitionDetection rule_;
  std::deque<TokenId> tail_;      // the last max_pattern_size tokens, newest in front
  std::vector<int64_t> matches_;  // [p]: tokens in a row that equal the token p before them
};

class Answer {
 public:
  Answer(AnswerOptions options, std::shared_ptr<const text::Tokenizer> tokenizer);

  // Appends to out. Events after the end are ignored. The event's finish must not be an error.
  void take(const engine::Event& event, Delta& out);

  const std::optional<Ending>& ending() const { return ending_; }
  // Ended by what the text holds, not by the engine: the engine's row has to be aborted.
  bool must_abort() const { return must_abort_; }
  int64_t tokens() const { return tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  enum class State { reasoning, content };

  void take_token(const engine::Event& event, Delta& out);
  void take_text(const engine::Event& event, Delta& out);
  bool take_tag(TokenId token, Delta& out);  // a think tag that is markup here
  void end(Ending ending, Delta& out);

  const AnswerOptions options_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  State state_;
  bool thought_ = false;  // reasoning has begun at some time: no further <think> opens it
  TextLane reasoning_, content_;
  RepetitionDetector repetition_;
  int64_t tokens_ = 0, reasoning_tokens_ = 0;
  std::optional<Ending> ending_;
  bool must_abort_ = false;
};

}  // namespace tutti::api
