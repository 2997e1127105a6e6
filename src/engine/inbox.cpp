#include "engine/inbox.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tutti::engine {

Ticket Inbox::submit(Submission submission) {
  TUTTI_CHECK(submission.choices >= 1 && submission.stream != nullptr);
  const std::lock_guard lock(mutex_);
  const int choices = submission.choices;
  if (admission_ != Admission::accepted) return {.admission = admission_};
  if (live_ + choices > most_live_) return {.admission = Admission::queue_full};
  const Ticket ticket{.admission = Admission::accepted, .first_sequence = next_sequence_, .choices = choices};
  messages_.emplace_back(SubmitMessage{std::move(submission), ticket.first_sequence, Clock::now()});
  next_sequence_ += choices;
  if (live_ == 0) last_end_ = Clock::now();
  live_ += choices;
  rouse();
  return ticket;
}

void Inbox::post(Message message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  rouse();
}

void Inbox::wake() {
  const std::lock_guard lock(mutex_);
  rouse();
}

void Inbox::rouse() {
  awake_ = true;
  if (busy_.load(std::memory_order_relaxed)) return;
  progressed();  // the time without progress starts now
  busy_.store(true, std::memory_order_relaxed);
  roused_.notify_one();
}

void Inbox::close(Admission why) {
  const std::lock_guard lock(mutex_);
  if (admission_ == Admission::stopped) return;
  admission_ = why;
  rouse();
}

bool Inbox::closed() const {
  const std::lock_guard lock(mutex_);
  return admission_ != Admission::accepted;
}

bool Inbox::receive(std::vector<Message>& messages, bool wait) {
  messages.clear();
  std::unique_lock lock(mutex_);
  if (wait && !awake_) {
    busy_.store(false, std::memory_order_relaxed);
    roused_.wait(lock, [&] { return awake_; });
  }
  awake_ = false;
  messages.swap(messages_);
  return admission_ != Admission::stopped;
}

void Inbox::ended(int sequences) {
  const std::lock_guard lock(mutex_);
  live_ -= sequences;
  const Clock::time_point now = Clock::now();
  const double interval = std::chrono::duration<double>(now - last_end_).count() / std::max(1, sequences);
  end_interval_s_ = end_interval_s_ == 0 ? interval : end_interval_s_ + 0.1 * (interval - end_interval_s_);
  last_end_ = now;
  if (live_ == 0) empty_.notify_all();
}

bool Inbox::wait_until_empty(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return empty_.wait_until(lock, deadline, [&] { return live_ == 0; });
}

int Inbox::retry_after_s() const {
  const std::lock_guard lock(mutex_);
  // Nothing has ended for longer than usual: then that is the better estimate.
  const double since = live_ > 0 ? std::chrono::duration<double>(Clock::now() - last_end_).count() : 0;
  return static_cast<int>(std::clamp(std::ceil(std::max(end_interval_s_, since)), 1.0, 60.0));
}

int Inbox::live() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(live_);
}

double Inbox::stalled_s() const {
  if (!busy_.load(std::memory_order_relaxed)) return 0;
  const Clock::duration since =
      Clock::now().time_since_epoch() - Clock::duration(progress_.load(std::memory_order_relaxed));
  return std::max(0.0, std::chrono::duration<double>(since).count());
}

}  // namespace tutti::engine
