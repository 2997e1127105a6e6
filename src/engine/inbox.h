// The way in: admission, messages from any thread to the engine thread, and whether that thread has something to do.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <variant>
#include <vector>

#include "engine/engine.h"

namespace tutti::engine {

using Clock = std::chrono::steady_clock;

struct SubmitMessage {
  Submission submission;
  int64_t first_sequence = 0;
  Clock::time_point queued;
};
struct EndMessage {
  int64_t first_sequence = 0;
  int choices = 0;
  schedule::FinishReason reason = schedule::FinishReason::abort;  // abort, or stop: complete for its reader
};
struct EndAllMessage {};  // the drain's deadline has passed
using Message = std::variant<SubmitMessage, EndMessage, EndAllMessage>;

class Inbox {
 public:
  // rows: sequences that can run at once; max_queue more may wait.
  Inbox(int rows, int max_queue) : most_live_(static_cast<int64_t>(rows) + max_queue) {}

  // Any thread.
  Ticket submit(Submission submission);
  void post(Message message);
  void wake();
  // From now on submit() answers `why`; `stopped` also ends receive(). Never goes back.
  void close(Admission why);
  bool closed() const;
  // False when sequences were still alive at the deadline.
  bool wait_until_empty(Clock::time_point deadline);
  int retry_after_s() const;
  int live() const;
  // Seconds since the last progress; 0 while there is nothing to do.
  double stalled_s() const;

  // The engine thread. Takes all messages; with `wait` it sleeps until there is a message or a wake(). False once
  // stopped.
  bool receive(std::vector<Message>& messages, bool wait);
  void ended(int sequences);
  void progressed() { progress_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed); }

 private:
  void rouse();  // mutex_ held

  const int64_t most_live_;
  mutable std::mutex mutex_;
  std::condition_variable roused_, empty_;
  std::vector<Message> messages_;              // guarded by mutex_
  bool awake_ = false;                         // guarded by mutex_: receive() must not sleep
  Admission admission_ = Admission::accepted;  // guarded by mutex_
  int64_t live_ = 0;                           // guarded by mutex_: sequences accepted and not ended
  int64_t next_sequence_ = 0;                  // guarded by mutex_
  Clock::time_point last_end_;                 // guarded by mutex_
  double end_interval_s_ = 0;                  // guarded by mutex_: between two ends while busy; 0: not measured
  std::atomic<bool> busy_{false};              // written under mutex_: the engine thread is not asleep
  std::atomic<Clock::rep> progress_{0};
};

}  // namespace tutti::engine
