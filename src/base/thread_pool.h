// The kernel pool: fork-join over tiles, handed out one by one so that a busy neighbour process costs its share and no
// more. Which thread computes a tile never matters to the result. Workers spin briefly between joins, then park: an
// idle pool uses no processor time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti {

// A reference to a callable void(int tile, int thread); it must outlive the call that takes it.
class TileFunction {
 public:
  template <class F>
  TileFunction(const F& f)
      : object_(&f), call_([](const void* o, int tile, int thread) { (*static_cast<const F*>(o))(tile, thread); }) {}
  void operator()(int tile, int thread) const { call_(object_, tile, thread); }

 private:
  const void* object_;
  void (*call_)(const void*, int, int);
};

class ThreadPool {
 public:
  // threads ≥ 1, the calling thread included: threads - 1 workers are started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Calls f(tile, thread) for every tile in [0, tiles), thread in [0, threads()); returns when all are done. One caller
  // at a time; fewer than 2^20 tiles; f must not throw and must not call run().
  void run(int tiles, TileFunction f);

 private:
  void work(int thread);
  void drain(int thread, uint64_t generation);

  std::vector<std::thread> workers_;
  const TileFunction* function_ = nullptr;
  // generation << 40 | tiles << 20 | next tile. One word, so that a late worker can never take a tile of another run.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int> finished_{0};
  alignas(64) std::atomic<uint64_t> generation_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<int> parked_{0};
};

// Processors this process may use: the affinity mask, limited by the container's CPU quota; at least 1.
int available_cpus();

}  // namespace tutti
