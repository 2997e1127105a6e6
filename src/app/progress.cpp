#include "app/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"

namespace tutti::app {

using Clock = std::chrono::steady_clock;

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1), started_(Clock::now()), last_(started_) {}

Progress::~Progress() {
  if (terminal_ && drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::update(int64_t done_bytes, int64_t total_bytes) {
  const auto now = Clock::now();
  const auto interval = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (now - last_ < interval || total_bytes <= 0) return;
  last_ = now;
  const double share = std::clamp(static_cast<double>(done_bytes) / static_cast<double>(total_bytes), 0.0, 1.0);
  const double seconds = std::chrono::duration<double>(now - started_).count();
  const double gib = static_cast<double>(total_bytes) / (1 << 30);
  if (!terminal_) {
    log::info("{}: {:.0f} % of {:.2f} GiB", what_, share * 100, gib);
    return;
  }
  constexpr int kWidth = 30;
  const std::string bar(static_cast<size_t>(share * kWidth), '#');
  std::fprintf(stderr, "\r\033[K%s [%-*s] %3.0f %% of %.2f GiB, %.0f s left", what_.c_str(), kWidth, bar.c_str(),
               share * 100, gib, share > 0 ? seconds / share - seconds : 0.0);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace tutti::app
