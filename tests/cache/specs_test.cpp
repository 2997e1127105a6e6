#include "cache/specs.h"

#include <gtest/gtest.h>

namespace tutti::cache {
namespace {

TEST(CacheSpecs, bytes_add_up_over_the_layers_of_each_kind) {
  const LayerSpec paged{.kv = {.kv_heads = 2, .head_dim = 256, .bytes_per_value = 2}};
  const LayerSpec linear{.state = {.value_heads = 4, .key_dim = 128, .value_dim = 128, .conv_channels = 1024}};
  EXPECT_TRUE(paged.paged());
  EXPECT_FALSE(linear.paged());
  const CacheSpecs specs{linear, linear, linear, paged};
  EXPECT_EQ(bytes_per_block(specs), 2 * 64 * 2 * 256 * 2);
  EXPECT_EQ(bytes_per_slot(specs), 3 * 4 * (4 * 128 * 128 + 3 * 1024));
  EXPECT_EQ(bytes_per_block({}), 0);
}

TEST(CacheSpecs, do_not_overflow_on_large_models) {
  const CacheSpecs specs(64, LayerSpec{.kv = {.kv_heads = 1024, .head_dim = 4096, .bytes_per_value = 4}});
  EXPECT_EQ(bytes_per_block(specs), int64_t{64} * 2 * 64 * 1024 * 4096 * 4);
}

}  // namespace
}  // namespace tutti::cache
