#include "engine/pace.h"

#include <algorithm>

namespace tutti::engine {

namespace {
constexpr int kFirstChunk = 32;        // prompt tokens while nothing has been measured
constexpr int kMostTokens = 1 << 24;   // the scheduler's cap is the real limit
constexpr double kDecodeWeight = 0.2;  // of a new measurement
constexpr double kPromptWeight = 0.5;
}  // namespace

double Pace::step_time() const {
  return std::max(budget_s_, 1.5 * decode_s_);
}

double Pace::prompt_time(bool decoding) const {
  return step_time() - (decoding ? decode_s_ : 0);
}

void Pace::observe(int decode_tokens, int prompt_tokens, double seconds) {
  if (prompt_tokens == 0) {
    decode_s_ = decode_s_ == 0 ? seconds : decode_s_ + kDecodeWeight * (seconds - decode_s_);
    return;
  }
  const double spent = decode_tokens > 0 ? seconds - decode_s_ : seconds;
  const double rate = prompt_tokens / std::max({spent, 0.1 * seconds, 1e-9});
  // A few tokens cost nearly as much as many: they say something about the rate only if they show it to be higher, or
  // if they already fill the time.
  const bool telling = rate > prompt_rate_ || seconds > step_time() ||
                       prompt_tokens >= prompt_rate_ * prompt_time(decode_tokens > 0) / 2;
  if (telling) prompt_rate_ = prompt_rate_ == 0 ? rate : prompt_rate_ + kPromptWeight * (rate - prompt_rate_);
}

int Pace::token_budget(int decoding) const {
  if (prompt_rate_ == 0) return decoding + kFirstChunk;
  const double tokens = std::clamp(prompt_rate_ * prompt_time(decoding > 0), 1.0, static_cast<double>(kMostTokens));
  return decoding + static_cast<int>(tokens);
}

}  // namespace tutti::engine
