// Turns logits into tokens, one row at a time: nothing a row draws depends on its neighbours, the step or the batch.
// Order: logit_bias → repetition → presence/frequency → masks → temperature → top_k → top_p → min_p → draw. All in
// float32; sums of probabilities in double and in a fixed order.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sample/params.h"

namespace tutti::sample {

// What a random number is for: part of its key, so that no two uses ever share one.
enum class Purpose : uint32_t { token = 1 };

// A number in [0, 1) from a counter-based generator (Philox-4x32-10): a pure function of its key.
double uniform(uint64_t seed, uint32_t choice, uint64_t position, Purpose purpose);

// Mutable sampling state of one row: counts of prompt and generated tokens, and where its constraint is. A copy goes
// its own way: what is accepted there can be forgotten.
class RowState {
 public:
  RowState(SamplingParams params, int choice, std::span<const TokenId> prompt);

  const SamplingParams& params() const { return params_; }
  int choice() const { return choice_; }
  // The row has generated `token` (also while a preempted row is rebuilt).
  void accept(TokenId token);
  int generated() const { return static_cast<int>(output_.size()); }

 private:
  friend class Sampler;
  SamplingParams params_;
  int choice_ = 0;
  std::vector<TokenId> output_;
  std::vector<std::pair<TokenId, int>> counts_;  // of generated tokens, sorted by id
  std::vector<TokenId> seen_;                    // prompt and generated, sorted, for the repetition penalty
  ConstraintHolder constraint_;                  // after the generated tokens
};

struct Scan;  // sample/numeric.h
struct Work;  // a row on its way through the filters: sample/filters.h

enum class Fault { none, non_finite_logits, no_legal_token };

struct Sampled {
  TokenId token = -1;
  Fault fault = Fault::none;
  std::optional<Logprobs> logprobs;
};

// Scratch reused over rows; one per engine thread.
class Sampler {
 public:
  // logits [V] raw; `position` = index in the row's token list of the token drawn (prompt length + generated).
  // Does not change `row`: the caller accepts.
  Sampled sample(std::span<const float> logits, const RowState& row, uint64_t position);
  // The log-probabilities of a given token, for prompt_logprobs.
  Logprobs logprobs_of(std::span<const float> logits, TokenId token, int top);

 private:
  // -1: no legal token.
  TokenId choose(std::span<const float> logits, const Scan& raw, const RowState& row, uint64_t position);
  TokenId draw(Work& work, const RowState& row, uint64_t position);

  std::vector<float> work_, weights_;
  std::vector<double> sums_;
  std::vector<int> order_;
};

}  // namespace tutti::sample
