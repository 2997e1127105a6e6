#include "app/memory_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti::app {
namespace {

// One paged layer of 1,024 bytes per block, one linear layer of 4,000 bytes per slot.
cache::CacheSpecs small_model() {
  cache::LayerSpec paged, linear;
  paged.kv = {.kv_heads = 1, .head_dim = 4, .bytes_per_value = 2};
  linear.state = {.value_heads = 1, .key_dim = 10, .value_dim = 70, .conv_channels = 100};
  return {linear, paged};
}

TEST(MemoryPlan, CountsWhatALayerCosts) {
  EXPECT_EQ(cache::bytes_per_block(small_model()), 1024);
  EXPECT_EQ(cache::bytes_per_slot(small_model()), 4 * (700 + 300));
}

TEST(MemoryPlan, AmpleMemoryGivesEveryRowItsFullLength) {
  const auto plan = plan_memory(small_model(), {.available = 1 << 30, .model_max_len = 640, .max_num_seqs = 8});
  EXPECT_EQ(plan.slots, 8);
  EXPECT_EQ(plan.blocks, 8 * 10);
  EXPECT_EQ(plan.max_model_len, 640);
}

TEST(MemoryPlan, ShortMemoryShortensTheContextButKeepsOneFullRow) {
  const auto plan =
      plan_memory(small_model(), {.budget = 4000 + 3 * 1024 + 10, .model_max_len = 640, .max_num_seqs = 8});
  EXPECT_EQ(plan.slots, 1);
  EXPECT_EQ(plan.blocks, 3);
  EXPECT_EQ(plan.max_model_len, 192);
}

TEST(MemoryPlan, StatesTakeAtMostHalf) {
  const auto plan = plan_memory(small_model(), {.budget = 80000, .model_max_len = 64000, .max_num_seqs = 64});
  EXPECT_EQ(plan.slots, 10);
  EXPECT_EQ(plan.blocks, 40000 / 1024);
}

TEST(MemoryPlan, GuessesTakeSlotsForAFewRowsOnly) {
  const auto plan =
      plan_memory(small_model(), {.budget = 4'000'000, .model_max_len = 640, .max_num_seqs = 64, .draft_slots = 21});
  EXPECT_EQ(plan.draft_slots, 21);
  EXPECT_EQ(plan.slots, 64);
  const auto scarce =
      plan_memory(small_model(), {.budget = 160'000, .model_max_len = 640, .max_num_seqs = 64, .draft_slots = 21});
  EXPECT_EQ(scarce.draft_slots, 5);  // an eighth
  EXPECT_EQ(scarce.slots, 15);
  EXPECT_LE(scarce.bytes, 160'000);
}

TEST(MemoryPlan, SnapshotsComeOnTop) {
  const auto plan = plan_memory(
      small_model(), {.budget = 80'000, .model_max_len = 64'000, .max_num_seqs = 64, .prefix_caching = true});
  EXPECT_EQ(plan.snapshots, plan.blocks * 1024 * 2 / 5 / 4000);
  EXPECT_EQ(plan.snapshot_every, 256);  // 4 blocks of 1,024 bytes
  const auto none = plan_memory(
      small_model(),
      {.budget = 80'000, .model_max_len = 64'000, .max_num_seqs = 64, .prefix_caching = true, .snapshot_bytes = 0});
  EXPECT_EQ(none.snapshots, 0);
  EXPECT_EQ(none.blocks, plan.blocks);
}

// Hidden size plays no part: full layers, their KV heads of 256, linear layers, their value heads of 128 x 128, and the
// channels of the convolution.
struct Shape {
  const char* name;
  int full, kv_heads, linear, value_heads, channels;
};

TEST(MemoryPlan, PeriodicSnapshotsCostNoMoreThanTheBlocksTheyGoWith) {
  for (const Shape& shape :
       {Shape{"0.8B", 6, 2, 18, 16, 6144}, Shape{"27B", 16, 4, 48, 48, 10240}, Shape{"35B-A3B", 10, 2, 30, 32, 8192}}) {
    cache::CacheSpecs specs;
    cache::LayerSpec paged, linear;
    paged.kv = {.kv_heads = shape.kv_heads, .head_dim = 256};
    linear.state = {
        .value_heads = shape.value_heads, .key_dim = 128, .value_dim = 128, .conv_channels = shape.channels};
    specs.insert(specs.end(), static_cast<size_t>(shape.full), paged);
    specs.insert(specs.end(), static_cast<size_t>(shape.linear), linear);
    const auto plan = plan_memory(
        specs, {.budget = int64_t{16} << 30, .model_max_len = 262'144, .max_num_seqs = 8, .prefix_caching = true});
    const double blocks =
        static_cast<double>(cache::bytes_per_block(specs)) * plan.snapshot_every / cache::kBlockTokens;
    const double ratio = static_cast<double>(cache::bytes_per_slot(specs)) / blocks;
    EXPECT_LE(ratio, 1.1) << shape.name;
    EXPECT_GE(ratio, 0.9) << shape.name << ": fewer than they could be";
    std::printf("%s: one every %d tokens, %.3f of the bytes of their blocks\n", shape.name, plan.snapshot_every, ratio);
  }
}

TEST(MemoryPlan, TooLittleIsAnError) {
  EXPECT_THROW(plan_memory(small_model(), {.budget = 100, .model_max_len = 640, .max_num_seqs = 8}), OptionError);
}

TEST(MemoryPlan, AnExplicitLengthThatDoesNotFitIsAnError) {
  EXPECT_THROW(
      plan_memory(small_model(), {.budget = 9000, .model_max_len = 6400, .max_model_len = 6400, .max_num_seqs = 1}),
      OptionError);
  EXPECT_EQ(plan_memory(small_model(), {.budget = 9000, .model_max_len = 6400, .max_model_len = 128, .max_num_seqs = 1})
                .max_model_len,
            128);
}

}  // namespace
}  // namespace tutti::app
