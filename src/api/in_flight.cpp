#include "api/in_flight.h"

#include <vector>

namespace tutti::api {

InFlight::InFlight(std::chrono::milliseconds interval) : interval_(interval), thread_([this] { run(); }) {}

InFlight::~InFlight() {
  stop();
}

std::string InFlight::claim(const std::string& wanted) {
  const std::lock_guard lock(mutex_);
  std::string id = wanted;
  for (int i = 2; !entries_.emplace(id, nullptr).second; ++i) id = wanted + '-' + std::to_string(i);
  return id;
}

void InFlight::keep(const std::string& id, std::shared_ptr<Ticking> work) {
  const std::lock_guard lock(mutex_);
  if (stop_) return;
  entries_[id] = std::move(work);
  wake_.notify_one();
}

void InFlight::release(const std::string& id) {
  std::shared_ptr<Ticking> last;  // its destructor runs outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  last = std::move(found->second);
  entries_.erase(found);
}

size_t InFlight::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void InFlight::stop() {
  std::map<std::string, std::shared_ptr<Ticking>> last;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    last.swap(entries_);
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void InFlight::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (entries_.empty()) {
      wake_.wait(lock);
      continue;
    }
    wake_.wait_for(lock, interval_);
    std::vector<std::shared_ptr<Ticking>> works;
    for (const auto& [id, work] : entries_) {
      if (work) works.push_back(work);
    }
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    for (const auto& work : works) work->tick(now);
    works.clear();
    lock.lock();
  }
}

}  // namespace tutti::api
