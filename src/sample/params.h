// Sampling parameters of one request, resolved: every default filled in, every range checked by the API.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/token_constraint.h"

namespace tutti::sample {

struct SamplingParams {
  float temperature = 1;  // < 1e-5: greedy, and top_k, top_p, min_p have no effect
  int top_k = 0;          // ≤ 0: all
  float top_p = 1;  // smallest set with mass ≥ top_p, ties at the border kept by lower id; 0: the most likely token
  float min_p = 0;  // keep p ≥ min_p · max p, after temperature
  float presence_penalty = 0, frequency_penalty = 0;  // over generated tokens
  float repetition_penalty = 1;                       // over prompt and generated tokens
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint64_t seed = 0;                                  // drawn by the API when the request has none
  int min_tokens = 0;                                 // `blocked_early` tokens are masked before that many
  std::vector<TokenId> blocked_early;                 // end and stop tokens
  std::vector<std::vector<TokenId>> bad_words;        // token sequences that can't complete
  std::vector<TokenId> allowed;                       // empty: all
  std::shared_ptr<const TokenConstraint> constraint;  // as it is before the first token; null: none
  bool logprobs = false;
  int top_logprobs = 0;              // 0–20
  std::vector<TokenId> logprob_ids;  // reported instead of the top list
  int prompt_logprobs = -1;          // -1: none; else the number of top entries per prompt token
  bool greedy() const { return temperature < 1e-5f; }
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // natural log of the raw model distribution
  int rank = 0;       // 1 = most likely
};

// The log-probabilities of one position: the token's own, and the top list by logprob (ties by lower id).
struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

}  // namespace tutti::sample
