// Shows how far loading is: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tutti::app {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  void update(int64_t done_bytes, int64_t total_bytes);

 private:
  const std::string what_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point last_;
  bool drawn_ = false;
};

}  // namespace tutti::app
