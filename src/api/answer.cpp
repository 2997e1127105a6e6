#include "api/answer.h"

#include <algorithm>
#include <iterator>

namespace tutti::api {

void Delta::clear() {
  reasoning.clear();
  content.clear();
  ids.clear();
}

void Delta::append(Delta&& other) {
  reasoning.append(std::move(other.reasoning));
  content.append(std::move(other.content));
  ids.insert(ids.end(), other.ids.begin(), other.ids.end());
}

RepetitionDetector::RepetitionDetector(const RepetitionDetection& rule)
    : rule_(rule), matches_(rule.on() ? static_cast<size_t>(rule.max_pattern_size) + 1 : 0) {}

bool RepetitionDetector::push(TokenId token) {
  if (!rule_.on()) return false;
  bool found = false;
  for (size_t p = 1; p <= tail_.size(); ++p) {
    matches_[p] = tail_[p - 1] == token ? matches_[p] + 1 : 0;
    const auto period = static_cast<int64_t>(p);
    found |= period >= rule_.min_pattern_size && matches_[p] >= period * (rule_.min_count - 1);
  }
  tail_.push_front(token);
  if (tail_.size() > static_cast<size_t>(rule_.max_pattern_size)) tail_.pop_back();
  return found;
}

Answer::Answer(AnswerOptions options, std::shared_ptr<const text::Tokenizer> tokenizer)
    : options_(std::move(options)),
      tokenizer_(std::move(tokenizer)),
      state_(options_.parse_reasoning && options_.in_reasoning ? State::reasoning : State::content),
      thought_(state_ == State::reasoning),
      reasoning_(Trim::both, {}, false),
      content_(options_.parse_reasoning ? Trim::opening : Trim::none, options_.stops, options_.include_stop),
      repetition_(options_.repetition) {}

void Answer::take(const engine::Event& event, Delta& out) {
  if (ending_) return;
  if (event.token >= 0) take_token(event, out);
  if (ending_ || event.finish == schedule::FinishReason::none) return;
  if (event.finish == schedule::FinishReason::length) return end({.length = true}, out);
  Ending ending;
  const bool is_end =
      std::find(options_.end_ids.begin(), options_.end_ids.end(), event.stop_token) != options_.end_ids.end();
  if (is_end && !options_.ignore_eos) {
    if (state_ == State::reasoning) ending.reason = "eos_in_reasoning";
  } else if (event.stop_token >= 0) {
    ending.reason = event.stop_token;
  }
  end(std::move(ending), out);
}

void Answer::take_token(const engine::Event& event, Delta& out) {
  ++tokens_;
  out.ids.push_back(event.token);
  const bool stops = event.finish == schedule::FinishReason::stop && event.stop_token == event.token;
  const bool tag = !stops && take_tag(event.token, out);
  if (tag) return;
  if (state_ == State::reasoning) ++reasoning_tokens_;
  if (stops) return;
  take_text(event, out);
  if (content_.match()) {
    must_abort_ = event.finish == schedule::FinishReason::none;
    return end({.reason = content_.match()->stop}, out);
  }
  if (repetition_.push(event.token) && event.finish == schedule::FinishReason::none) {
    must_abort_ = true;
    end({.reason = "repetition_detected"}, out);
  }
}

bool Answer::take_tag(TokenId token, Delta& out) {
  if (!options_.parse_reasoning || token < 0) return false;
  if (state_ == State::reasoning && token == options_.think_close) {
    reasoning_.finish(out.reasoning);
    state_ = State::content;
  } else if (state_ == State::reasoning && token == options_.think_open && reasoning_tokens_ == 0) {
    // The prompt has opened it already.
  } else if (state_ == State::content && token == options_.think_open && !thought_ && content_.blank()) {
    state_ = State::reasoning;
    thought_ = true;
  } else {
    return false;
  }
  ++reasoning_tokens_;
  return true;
}

void Answer::take_text(const engine::Event& event, Delta& out) {
  const bool in_reasoning = state_ == State::reasoning;
  const bool hidden = (in_reasoning || options_.skip_special_tokens) && tokenizer_->is_special(event.token);
  if (hidden || std::find(options_.end_ids.begin(), options_.end_ids.end(), event.token) != options_.end_ids.end())
    return;
  const std::string& bytes = tokenizer_->token_bytes(event.token);
  if (in_reasoning) return reasoning_.push(bytes, event.logprobs, false, out.reasoning);
  content_.push(bytes, event.logprobs, tokens_ >= options_.min_tokens, out.content);
}

void Answer::end(Ending ending, Delta& out) {
  if (state_ == State::reasoning) reasoning_.finish(out.reasoning);
  if (!content_.match()) content_.finish(out.content);
  ending_ = std::move(ending);
}

}  // namespace tutti::api
