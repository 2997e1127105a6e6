// A request as the scheduler sees it: integers only.
#pragma once

#include <climits>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"

namespace tutti::schedule {

enum class FinishReason { none, stop, length, abort, error };

// Immutable; one sequence (one choice). Fully validated by the API, checked again by the scheduler's CHECKs.
struct Request {
  SequenceId id;
  std::vector<TokenId> prompt;  // ≥ 1 token
  int max_tokens = 0;           // ≥ 1 (0 only with prompt_logprobs); already cut to the room left
  int min_tokens = 0;
  std::vector<TokenId> stop_ids;  // end tokens (unless ignore_eos) and stop_token_ids, sorted
  int64_t priority = 0;           // lower first
  int logits_from = -1;           // ≥ 0: also wants the logits of prompt tokens from this index on (prompt_logprobs)
  int max_drafts = INT_MAX;       // guesses verified per step; the scheduler's own limit holds as well
  bool use_prefix_cache = true;   // neither finds nor leaves anything there when false
  std::string cache_salt;         // requests with another one share nothing with it
  std::vector<int> boundaries;    // ascending prompt lengths that may come again: where the prompt's messages end
};

}  // namespace tutti::schedule
