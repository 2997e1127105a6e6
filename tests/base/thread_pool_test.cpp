#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>

#include "base/error.h"

namespace tutti {
namespace {

TEST(ThreadPool, EveryTileRunsExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 2000; ++round) {
      const int tiles = round % 37;
      std::vector<std::atomic<int>> seen(static_cast<size_t>(tiles));
      pool.run(tiles, [&](int tile, int thread) {
        ASSERT_LT(thread, threads);
        seen[static_cast<size_t>(tile)].fetch_add(1);
      });
      for (const auto& count : seen) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, WritesOfTilesAreVisibleAfterRun) {
  ThreadPool pool(4);
  std::vector<int> values(1000);
  for (int round = 1; round <= 500; ++round) {
    pool.run(1000, [&](int tile, int) { values[static_cast<size_t>(tile)] = round; });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), 0), 1000 * round);
  }
}

TEST(ThreadPool, IdleWorkersUseNoProcessorTime) {
  ThreadPool pool(4);
  pool.run(8, [](int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // past the spinning
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
}

TEST(ThreadPool, TooManyTilesIsABrokenInvariant) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.run(1 << 20, [](int, int) {}), InvariantError);
}

TEST(AvailableCpus, IsAtLeastOne) {
  EXPECT_GE(available_cpus(), 1);
}

}  // namespace
}  // namespace tutti
