// How many tokens fit a step's time, from what steps took. Engine thread.
#pragma once

#include <chrono>

namespace tutti::engine {

class Pace {
 public:
  explicit Pace(std::chrono::milliseconds step_budget)
      : budget_s_(std::chrono::duration<double>(step_budget).count()) {}

  // A step took so long. decode_tokens: rows of one token; prompt_tokens: all others.
  void observe(int decode_tokens, int prompt_tokens, double seconds);
  // Tokens for the next step: the decoding rows, and the prompt tokens that fit the rest of its time.
  int token_budget(int decoding) const;
  // max(step budget, 1.5 × the measured decode-only step), seconds.
  double step_time() const;

 private:
  double prompt_time(bool decoding) const;  // of a step, what is left beside the decoding rows

  double budget_s_;
  double decode_s_ = 0;     // a decode-only step; 0: not measured
  double prompt_rate_ = 0;  // prompt tokens per second; 0: not measured
};

}  // namespace tutti::engine
