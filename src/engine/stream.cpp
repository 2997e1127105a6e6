#include "engine/stream.h"

#include <algorithm>

#include "base/error.h"

namespace tutti::engine {

Stream::Stream(size_t capacity, std::function<void()> notify) : capacity_(capacity), notify_(std::move(notify)) {
  TUTTI_CHECK(capacity >= 1);
}

void Stream::push(Event event) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    const size_t choice = static_cast<size_t>(std::max(0, event.choice));
    if (choice >= waiting_.size()) waiting_.resize(choice + 1);
    fullest_ = std::max(fullest_, ++waiting_[choice]);
    first = events_.empty();
    events_.push_back(std::move(event));
  }
  if (first && notify_) notify_();
}

bool Stream::full() const {
  const std::lock_guard lock(mutex_);
  return full_locked();
}

std::vector<Event> Stream::drain() {
  std::vector<Event> events;
  std::function<void()> on_room;
  {
    const std::lock_guard lock(mutex_);
    events.swap(events_);
    if (full_locked()) on_room = on_room_;
    std::fill(waiting_.begin(), waiting_.end(), 0);
    fullest_ = 0;
  }
  if (on_room) on_room();
  return events;
}

void Stream::set_on_room(std::function<void()> on_room) {
  const std::lock_guard lock(mutex_);
  on_room_ = std::move(on_room);
}

}  // namespace tutti::engine
