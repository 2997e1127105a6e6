// Cache memory as bytes: what save() gives, load() puts back anywhere, whatever lies around it.
#include <gtest/gtest.h>
#include <mlx/ops.h>

#include <cstring>

#include "cache/cache_store.h"

namespace tutti::cache {
namespace {

using What = Copy::What;

CacheSpecs specs() {
  return {{.kv = {.kv_heads = 2, .head_dim = 8}},
          {.state = {.value_heads = 2, .key_dim = 4, .value_dim = 8, .conv_channels = 24}},
          {.kv = {.kv_heads = 1, .head_dim = 16}}};
}

class Store : public testing::TestWithParam<std::tuple<ops::Body, kernels::KvType>> {
 protected:
  std::unique_ptr<CacheStore> make() const {
    ops::Numerics numerics;
    numerics.body = std::get<0>(GetParam());
    numerics.kv = std::get<1>(GetParam());
    return make_store(specs(), 5, 4, numerics);
  }
  static std::vector<std::byte> pattern(size_t bytes, int seed) {
    std::vector<std::byte> all(bytes);
    // Exponents stay small: the bytes are numbers of any type, none of them NaN.
    for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>((i * 7 + static_cast<size_t>(seed) * 13) % 60);
    return all;
  }
  static std::vector<std::byte> saved(CacheStore& store, What what, int index) {
    std::vector<std::byte> bytes(store.bytes_of(what));
    store.save(what, index, bytes);
    return bytes;
  }
};

TEST_P(Store, BytesGoOutAndIn) {
  const auto store = make();
  const size_t value = std::get<1>(GetParam()) == kernels::KvType::float32 ? 4 : 2;
  EXPECT_EQ(store->bytes_of(What::block), 2 * 64 * (2 * 8 + 16) * value);
  EXPECT_EQ(store->bytes_of(What::slot), 4u * (2 * 4 * 8 + 3 * 24));
  for (const What what : {What::block, What::slot})
    for (int i = 0; i < 4; ++i) store->load(what, i, pattern(store->bytes_of(what), i));
  for (const What what : {What::block, What::slot})
    for (int i = 0; i < 4; ++i) EXPECT_EQ(saved(*store, what, i), pattern(store->bytes_of(what), i));
  store->copy(std::vector<Copy>{{What::block, 1, 3}, {What::slot, 2, 0}});
  EXPECT_EQ(saved(*store, What::block, 3), pattern(store->bytes_of(What::block), 1));
  EXPECT_EQ(saved(*store, What::slot, 0), pattern(store->bytes_of(What::slot), 2));
  EXPECT_EQ(saved(*store, What::slot, 3), pattern(store->bytes_of(What::slot), 3));
}

INSTANTIATE_TEST_SUITE_P(Bodies, Store,
                         testing::Combine(testing::Values(ops::Body::cpu, ops::Body::graph),
                                          testing::Values(kernels::KvType::bfloat16, kernels::KvType::float32)));

}  // namespace
}  // namespace tutti::cache
