#include "compat/masks.h"

#include <gmock/gmock.h>

#include "arrays.h"
#include "compat/batch_kv_cache.h"

namespace tutti::compat {
namespace {

using test::complaint;
using testing::HasSubstr;

mx::array mask_of(int width) {
  return mx::ones({1, 1, 3, width}, mx::bool_);
}
int width(const Mask& mask) {
  return std::get<mx::array>(mask).shape(-1);
}

BatchKVCache batch_with_ten() {
  BatchKVCache cache({0});
  cache.update_and_fetch(mx::zeros({1, 1, 10, 4}), mx::zeros({1, 1, 10, 4}));
  return cache;
}

TEST(SliceAttentionMask, PassesWhatIsNoArray) {
  const auto cache = batch_with_ten();
  EXPECT_TRUE(std::holds_alternative<std::monostate>(slice_attention_mask({}, &cache, 14, 3)));
  EXPECT_EQ(std::get<std::string>(slice_attention_mask(std::string("causal"), &cache, 14, 3)), "causal");
}

TEST(SliceAttentionMask, CutsToTheFillOfABatchAndElseToTheLength) {
  const auto batch = batch_with_ten();
  const KVCache plain;
  EXPECT_EQ(width(slice_attention_mask(mask_of(20), &batch, 99, 3)), 13);
  EXPECT_EQ(width(slice_attention_mask(mask_of(20), &plain, 14, 3)), 14);
  EXPECT_EQ(width(slice_attention_mask(mask_of(13), &plain, 14, 3)), 13);
  EXPECT_EQ(width(slice_attention_mask(mask_of(20), nullptr, test::ints({5, 9}, {2}), 3)), 9);
  EXPECT_EQ(width(slice_attention_mask(mask_of(20), &plain, -1, 3)), 0);
}

TEST(SliceAttentionMask, IsTakenBeforeTheUpdate) {
  auto batch = batch_with_ten();
  batch.update_and_fetch(mx::zeros({1, 1, 3, 4}), mx::zeros({1, 1, 3, 4}));
  EXPECT_EQ(width(slice_attention_mask(mask_of(20), &batch, 99, 3)), 16);
}

TEST(SliceAttentionMask, CutsOnlyTheLastAxisOfAnyRank) {
  const auto cut_mask = slice_attention_mask(mx::ones({20}, mx::bool_), nullptr, 4, 3);
  EXPECT_EQ(std::get<mx::array>(cut_mask).shape(), (mx::Shape{4}));
  EXPECT_THAT(complaint([] { slice_attention_mask(mx::array(true), nullptr, 4, 3); }), HasSubstr("scalar"));
  EXPECT_THAT(complaint([] { slice_attention_mask(mask_of(2), nullptr, 4, -3); }), HasSubstr("negative length -3"));
}

}  // namespace
}  // namespace tutti::compat
