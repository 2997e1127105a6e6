// bfloat16, aligned buffers, results, errors, the task pool.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "base/aligned_buffer.h"
#include "base/bfloat16.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/task_pool.h"

namespace tutti {
namespace {

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // half way: even below
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // half way: even above
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Bfloat16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const float f = bf16_to_float(static_cast<bf16>(b));
    if (std::isnan(f)) continue;
    ASSERT_EQ(float_to_bf16(f), b);
  }
}

TEST(AlignedBuffer, IsAlignedZeroedAndMoves) {
  AlignedBuffer a(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 4096, 0u);
  EXPECT_EQ(a.as<char>()[99], 0);
  void* data = a.data();
  AlignedBuffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
}

TEST(Result, HoldsOneOfTwo) {
  Result<int, std::string> good(3), bad(std::string("no"));
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(*good, 3);
  EXPECT_EQ(bad.error(), "no");
  EXPECT_THROW(bad.value(), InvariantError);
}

TEST(LoadError, ListsEveryProblem) {
  const LoadError error("model.safetensors", {"a: missing", "b: wrong shape"});
  EXPECT_THAT(error.what(), testing::HasSubstr("2 problems"));
  EXPECT_THAT(error.what(), testing::HasSubstr("a: missing"));
  EXPECT_THAT(error.what(), testing::HasSubstr("b: wrong shape"));
}

TEST(TaskPool, RunsWhatIsQueuedBeforeItEnds) {
  std::atomic<int> done{0};
  {
    TaskPool pool(3);
    for (int i = 0; i < 100; ++i) pool.post([&] { ++done; });
  }
  EXPECT_EQ(done.load(), 100);
}

TEST(Memory, ThereIsSome) {
  EXPECT_GT(available_memory(), 1 << 20);
}

}  // namespace
}  // namespace tutti
