// A few threads for work that must stay off the io and engine threads: tokenizing, template rendering, media.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti {

class TaskPool {
 public:
  explicit TaskPool(int threads);
  ~TaskPool();  // runs what is queued, then joins
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Any thread. task must not throw.
  void post(std::function<void()> task);
  size_t queued() const;

 private:
  void work();

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace tutti
