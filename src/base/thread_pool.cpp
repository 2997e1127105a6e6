#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "base/error.h"

namespace tutti {
namespace {

constexpr int kSpins = 2000;  // about 20–50 µs: longer than the gap between two kernels, shorter than a scheduler tick

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr uint64_t kTileMask = (uint64_t{1} << 20) - 1;
constexpr uint64_t kGenerationMask = (uint64_t{1} << 24) - 1;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::drain(int thread, uint64_t generation) {
  for (;;) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    do {
      if ((ticket >> 40) != (generation & kGenerationMask)) return;
      if ((ticket & kTileMask) >= ((ticket >> 20) & kTileMask)) return;
    } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire));
    (*function_)(static_cast<int>(ticket & kTileMask), thread);
    finished_.fetch_add(1, std::memory_order_acq_rel);
  }
}

void ThreadPool::run(int tiles, TileFunction f) {
  if (tiles <= 0) return;
  if (workers_.empty() || tiles == 1) {
    for (int t = 0; t < tiles; ++t) f(t, 0);
    return;
  }
  function_ = &f;
  TUTTI_CHECK(static_cast<uint64_t>(tiles) <= kTileMask);
  finished_.store(0, std::memory_order_relaxed);
  const uint64_t generation = generation_.load(std::memory_order_relaxed) + 1;
  ticket_.store((generation & kGenerationMask) << 40 | static_cast<uint64_t>(tiles) << 20, std::memory_order_release);
  generation_.store(generation);
  if (parked_.load() > 0) {
    {
      std::lock_guard lock(mutex_);
    }
    wake_.notify_all();
  }
  drain(0, generation);
  for (int spins = 0; finished_.load(std::memory_order_acquire) != tiles; ++spins) {
    if (spins < kSpins)
      pause();
    else
      sched_yield();
  }
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    uint64_t now = generation_.load(std::memory_order_acquire);
    for (int spins = 0; now == seen && spins < kSpins; ++spins) {
      pause();
      now = generation_.load(std::memory_order_acquire);
    }
    if (now == seen) {
      std::unique_lock lock(mutex_);
      parked_.fetch_add(1);
      wake_.wait(lock, [&] { return generation_.load() != seen || stop_.load(); });
      parked_.fetch_sub(1);
      continue;
    }
    seen = now;
    drain(thread, now);
  }
}

namespace {

// CPU quota of the container in processors, or +inf (cgroup v2, then v1).
double cgroup_cpus() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period) return quota == "max" || period <= 0 ? INFINITY : std::stod(quota) / period;
  std::ifstream q("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), p("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double micros = -1;
  if (q >> micros && p >> period && micros > 0 && period > 0) return micros / period;
  return INFINITY;
}

}  // namespace

int available_cpus() {
  cpu_set_t set;
  int count = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
  const double quota = cgroup_cpus();
  if (std::isfinite(quota)) count = std::min(count, static_cast<int>(std::ceil(quota)));
  return std::max(count, 1);
}

}  // namespace tutti
