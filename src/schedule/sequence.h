// The mutable side of a request inside the engine.
#pragma once

#include <vector>

#include "schedule/request.h"

namespace tutti::schedule {

enum class Status { waiting, running, preempted, finished };

struct Sequence {
  std::shared_ptr<const Request> request;
  std::vector<TokenId> tokens;  // prompt and generated
  int computed = 0;             // tokens whose caches exist; ≤ tokens.size()
  Status status = Status::waiting;
  FinishReason finish = FinishReason::none;
  TokenId stop_token = -1;      // the stop id that ended it
  int64_t arrival = 0;          // order of admission to the queue
  int preemptions = 0;
  bool paused = false;          // its stream is full: left out of plans until drained
  int64_t last_served = 0;      // step number, for taking turns

  int prompt_tokens() const { return static_cast<int>(request->prompt.size()); }
  int generated() const { return static_cast<int>(tokens.size()) - prompt_tokens(); }
  int uncomputed() const { return static_cast<int>(tokens.size()) - computed; }
};

}  // namespace tutti::schedule
