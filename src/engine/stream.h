// One request's way out: a bounded queue from the engine thread to whoever writes the answer. The engine never blocks
// on it: a full stream pauses its sequences at plan time, and they go on when it has been drained. Thread rule: push by
// the engine thread; the rest by any thread.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sample/params.h"
#include "schedule/request.h"

namespace tutti::engine {

struct Event {
  int choice = 0;
  TokenId token = -1;       // -1: the event only starts or finishes the choice
  bool started = false;     // the first chunk of the prompt is about to run (sent once per choice, before any token)
  int prompt_computed = 0;  // > 0: so many tokens of a long prompt are done (sent now and then, before any token)
  std::optional<sample::Logprobs> logprobs;
  std::vector<sample::Logprobs> prompt_logprobs;  // in order; together they cover prompt tokens 1 … n-1
  schedule::FinishReason finish = schedule::FinishReason::none;
  TokenId stop_token = -1;
  std::string error_code;  // with finish == error: numerical_error, grammar_error, internal_error, server_draining
  std::string error_message;
  int prompt_tokens = 0, generated = 0, cached_tokens = 0;
  int drafts_accepted = 0, drafts_rejected = 0;  // so far
};

class Stream {
 public:
  // capacity: events per choice before the sequence is paused. notify: called after a push into an empty queue, on the
  // engine thread, without the lock; it must be quick and must not call back into the stream.
  Stream(size_t capacity, std::function<void()> notify);

  void push(Event event);
  bool full() const;
  std::vector<Event> drain();  // everything that is there, in order; maybe empty
  // Called once per drain() that made room in a full stream (the engine sets it; it wakes the engine).
  void set_on_room(std::function<void()> on_room);

 private:
  bool full_locked() const { return fullest_ >= capacity_; }

  const size_t capacity_;
  const std::function<void()> notify_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;      // guarded by mutex_
  std::vector<size_t> waiting_;    // guarded by mutex_: events per choice
  size_t fullest_ = 0;             // guarded by mutex_: the largest of waiting_
  std::function<void()> on_room_;  // guarded by mutex_
};

}  // namespace tutti::engine
