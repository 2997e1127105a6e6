// The generating requests that are under way: their ids are unique, and a thread of its own calls them from time to
// time for keep-alives and deadlines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace tutti::api {

class Ticking {
 public:
  virtual ~Ticking() = default;
  virtual void tick(std::chrono::steady_clock::time_point now) = 0;  // on the clock's thread; must be quick
};

class InFlight {
 public:
  explicit InFlight(std::chrono::milliseconds interval);
  ~InFlight();

  // `wanted`, or with -2, -3 … behind it while that is under way. Held until release().
  std::string claim(const std::string& wanted);
  // Keeps the work alive and ticking until release().
  void keep(const std::string& id, std::shared_ptr<Ticking> work);
  void release(const std::string& id);
  size_t size() const;
  void stop();  // joins the thread and lets go of everything

 private:
  void run();

  const std::chrono::milliseconds interval_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, std::shared_ptr<Ticking>> entries_;  // guarded by mutex_; null: claimed only
  bool stop_ = false;                                        // guarded by mutex_
  std::thread thread_;
};

}  // namespace tutti::api
