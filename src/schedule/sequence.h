// The mutable side of a request inside the engine.
#pragma once

#include <memory>
#include <vector>

#include "cache/prefix_key.h"
#include "schedule/request.h"

namespace tutti::schedule {

enum class Status { waiting, running, preempted, finished };

struct Sequence {
  std::shared_ptr<const Request> request;
  std::vector<TokenId> tokens;  // prompt and generated
  int computed = 0;             // tokens whose caches exist; ≤ tokens.size()
  Status status = Status::waiting;
  FinishReason finish = FinishReason::none;
  TokenId stop_token = -1;  // the stop id that ended it
  int64_t arrival = 0;      // order of admission to the queue
  int preemptions = 0;
  bool paused = false;      // its stream is full: left out of plans until drained
  int64_t last_served = 0;  // a count of rows served, for taking turns
  int64_t queued_ms = 0;    // when it came, by the scheduler's clock
  int64_t rank = 0;         // priority with which it was admitted; (rank, arrival) is its seniority while it runs
  int logits_done = 0;      // prompt tokens whose logits have been reported: not asked for again after a preemption
  // Keys of the tokens' full blocks; null when the sequence has nothing to do with the prefix cache.
  std::unique_ptr<cache::PrefixChain> chain;
  std::vector<int> snapshot_at;  // ascending positions of the prompt at which a snapshot is wanted
  int cached = 0;                // prompt tokens that came from the cache when it was first admitted
  bool admitted = false;         // has held caches
  std::vector<TokenId> drafts;   // guesses of the tokens that follow, for the next step
  bool follow = true;            // drafts are made for it; once lost, the draft head's caches can't catch up
  double hope = 1;               // running mean of the part of its drafts that was accepted
  int drafts_accepted = 0, drafts_rejected = 0;

  int prompt_tokens() const { return static_cast<int>(request->prompt.size()); }
  int generated() const { return static_cast<int>(tokens.size()) - prompt_tokens(); }
  int uncomputed() const { return static_cast<int>(tokens.size()) - computed; }
  bool decodes() const { return uncomputed() == 1 && generated() >= 1; }
};

}  // namespace tutti::schedule
