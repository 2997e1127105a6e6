#include <gmock/gmock.h>

#include "arrays.h"
#include "compat/arrays_cache.h"
#include "compat/batch_kv_cache.h"
#include "compat/padded_attention.h"

namespace tutti::compat {
namespace {

using test::bits_of;
using test::complaint;
using test::Ints;
using test::ints;
using test::ints_of;
using test::row;
using test::same_bits;
using testing::HasSubstr;

// Tokens of `rows` rows as keys [B, 1, n, 2]: token t of row b is 100 b + t.
mx::array tokens(int rows, int n, int first = 0) {
  return mx::astype(mx::expand_dims(mx::arange(rows) * mx::array(100), {1, 2, 3}) +
                        mx::expand_dims(mx::arange(first, first + n), {0, 1, 3}) + mx::zeros({2}, mx::int32),
                    mx::float32);
}
Ints first_values(const mx::array& keys, int b) {
  return ints_of(cut(row(keys, b), 3, 0, 1));
}
void feed(AttentionCache& cache, const mx::array& x) {
  cache.update_and_fetch(x, x + mx::array(0.5f));
}

BatchKVCache example_a() {
  BatchKVCache cache({1, 3, 0});
  feed(cache, tokens(3, 4));
  return cache;
}

TEST(BatchKVCache, CountsRealTokens) {
  const BatchKVCache fresh({1, 3, 0});
  EXPECT_EQ(fresh.offsets(), (Ints{-1, -3, 0}));
  EXPECT_EQ(fresh.size(), 0);
  EXPECT_TRUE(fresh.empty());
  const auto a = example_a();
  EXPECT_EQ(a.offsets(), (Ints{3, 1, 4}));
  EXPECT_EQ(a.size(), 4);
  EXPECT_EQ(a.capacity(), 256);
  EXPECT_EQ(a.nbytes(), 2 * 3 * 256 * 2 * 4);
}

TEST(BatchKVCache, GrowsInStepsAndDropsAnUnusedTail) {
  BatchKVCache cache({0});
  feed(cache, tokens(1, 250));
  feed(cache, tokens(1, 10, 250));
  EXPECT_EQ(cache.capacity(), 250 + 256);
  feed(cache, tokens(1, 300, 260));
  EXPECT_EQ(cache.capacity(), 260 + 512);
  EXPECT_EQ(cache.size(), 560);
  const auto keys = first_values(cache.keys(), 0);
  for (int t = 0; t < 560; ++t) EXPECT_EQ(keys[static_cast<size_t>(t)], t);
}

TEST(BatchKVCache, MasksPaddingAndTheFuture) {
  EXPECT_EQ(bits_of(example_a().make_mask(2)), "011110 011111 000110 000111 111110 111111");
  EXPECT_EQ(example_a().make_mask(2).shape(), (mx::Shape{3, 1, 2, 6}));
  EXPECT_EQ(bits_of(example_a().make_mask(1)), "01111 00011 11111");
  EXPECT_EQ(bits_of(BatchKVCache({1, 3, 0}).make_mask(4)),
            "0000 0100 0110 0111 0000 0000 0000 0001 1000 1100 1110 1111");
  EXPECT_EQ(bits_of(example_a().make_mask(2, 2)), "000110 000011 000110 000011 000110 000011");
}

TEST(BatchKVCache, FilterDropsSharedPadding) {
  auto c = example_a();
  c.filter({0, 1});
  EXPECT_EQ(c.left_padding(), (Ints{0, 2}));
  EXPECT_EQ(c.offsets(), (Ints{3, 1}));
  EXPECT_EQ(c.size(), 3);
  EXPECT_EQ(c.capacity(), 255);
  EXPECT_EQ(first_values(c.keys(), 0), (Ints{1, 2, 3}));
  auto twice = example_a();
  twice.filter({2, 0, 2});
  EXPECT_EQ(twice.offsets(), (Ints{4, 3, 4}));
  EXPECT_EQ(first_values(twice.keys(), 2), (Ints{200, 201, 202, 203}));
  EXPECT_THAT(complaint([&] { c.filter({}); }), HasSubstr("no row"));
  EXPECT_THAT(complaint([&] { c.filter({2}); }), HasSubstr("row 2 of 2"));
}

TEST(BatchKVCache, ExtendAlignsOnTheRight) {
  auto c = example_a();
  c.filter({0, 1});
  BatchKVCache other({0});
  feed(other, tokens(1, 5, 50));
  c.extend(other);
  EXPECT_EQ(c.left_padding(), (Ints{2, 4, 0}));
  EXPECT_EQ(c.offsets(), (Ints{3, 1, 5}));
  EXPECT_EQ(c.size(), 5);
  EXPECT_EQ(c.capacity(), 256);
  EXPECT_EQ(first_values(c.keys(), 0), (Ints{0, 0, 1, 2, 3}));
  EXPECT_EQ(first_values(c.keys(), 2), (Ints{50, 51, 52, 53, 54}));
  EXPECT_EQ(ints_of(cut(row(c.values(), 2) * mx::array(2.0f), 3, 0, 1)), (Ints{101, 103, 105, 107, 109}));
}

TEST(BatchKVCache, ExtendWithEmptySidesKeepsTheirRows) {
  BatchKVCache a({0, 1}), b({2});
  a.extend(b);
  EXPECT_EQ(a.left_padding(), (Ints{0, 1, 2}));
  EXPECT_EQ(a.offsets(), (Ints{0, -1, -2}));
  auto full = example_a();
  full.extend(BatchKVCache({0, 0}));
  EXPECT_EQ(full.left_padding(), (Ints{1, 3, 0, 4, 4}));
  EXPECT_EQ(full.offsets(), (Ints{3, 1, 4, 0, 0}));
  EXPECT_EQ(full.keys().shape(), (mx::Shape{5, 1, 4, 2}));
  BatchKVCache empty({0, 0});
  empty.extend(example_a());
  EXPECT_EQ(empty.left_padding(), (Ints{4, 4, 1, 3, 0}));
  EXPECT_EQ(first_values(empty.keys(), 4), (Ints{200, 201, 202, 203}));
}

TEST(BatchKVCache, MergesSingleRowsAndExtractsThem) {
  KVCache three, none, five;
  feed(three, tokens(1, 3));
  feed(five, tokens(1, 5, 10));
  const KVCache* members[] = {&three, &none, &five};
  const auto merged = BatchKVCache::merge(members);
  EXPECT_EQ(merged.left_padding(), (Ints{2, 5, 0}));
  EXPECT_EQ(merged.offsets(), (Ints{3, 0, 5}));
  EXPECT_EQ(merged.size(), 5);
  const auto back = merged.extract(0);
  EXPECT_EQ(back.size(), 3);
  EXPECT_TRUE(same_bits(back.keys(), three.keys()));
  EXPECT_TRUE(same_bits(back.values(), three.values()));
  EXPECT_EQ(merged.extract(1).size(), 0);
  const KVCache* empties[] = {&none, &none};
  EXPECT_EQ(BatchKVCache::merge(empties).left_padding(), (Ints{0, 0}));
  EXPECT_TRUE(BatchKVCache::merge(empties).empty());
}

TEST(BatchKVCache, RightPaddingMovesToTheFront) {
  BatchKVCache cache({0, 0, 0});
  cache.prepare({.lengths = {4, 2, 3}, .right_padding = {0, 2, 1}});
  feed(cache, tokens(3, 4));
  EXPECT_EQ(cache.offsets(), (Ints{4, 4, 4}));
  EXPECT_THAT(complaint([&] { feed(cache, tokens(3, 1)); }), HasSubstr("finalize()"));
  cache.finalize();
  EXPECT_EQ(cache.offsets(), (Ints{4, 2, 3}));
  EXPECT_EQ(cache.left_padding(), (Ints{0, 2, 1}));
  EXPECT_EQ(cache.size(), 4);
  const auto keys = first_values(cache.keys(), 1);
  EXPECT_EQ((Ints{keys[2], keys[3]}), (Ints{100, 101}));
  EXPECT_EQ(first_values(cache.extract(2).keys(), 0), (Ints{200, 201, 202}));
  EXPECT_EQ(cache.trim(2), 2);
  EXPECT_EQ(cache.size(), 2);
  EXPECT_EQ(cache.offsets(), (Ints{2, 0, 1}));
}

TEST(BatchKVCache, AWindowMaySpanSeveralUpdates) {
  BatchKVCache cache({0, 0});
  feed(cache, tokens(2, 2));
  cache.prepare({.lengths = {4, 1}, .right_padding = {0, 3}});
  feed(cache, tokens(2, 2, 2));
  feed(cache, tokens(2, 2, 4));
  cache.finalize();
  EXPECT_EQ(cache.offsets(), (Ints{6, 3}));
  EXPECT_EQ(first_values(cache.extract(1).keys(), 0), (Ints{100, 101, 102}));
  feed(cache, tokens(2, 1, 9));
  EXPECT_EQ(first_values(cache.extract(1).keys(), 0), (Ints{100, 101, 102, 109}));
  EXPECT_THAT(complaint([] { BatchKVCache({0, 0}).prepare({.lengths = {4, 1}, .right_padding = {0, 2}}); }),
              HasSubstr("add up"));
}

TEST(BatchKVCache, TrimsNoMoreThanThereIs) {
  auto cache = example_a();
  EXPECT_EQ(cache.trim(9), 4);
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(cache.offsets(), (Ints{-1, -3, 0}));
  EXPECT_THAT(complaint([&] { cache.trim(-1); }), HasSubstr("negative length -1"));
}

TEST(BatchKVCache, PreparesLeftPaddingOnlyWhileEmpty) {
  BatchKVCache cache({1, 0});
  cache.prepare({.left_padding = {2, 1}});
  EXPECT_EQ(cache.left_padding(), (Ints{3, 1}));
  EXPECT_EQ(cache.offsets(), (Ints{-3, -1}));
  feed(cache, tokens(2, 4));
  EXPECT_THAT(complaint([&] { cache.prepare({.left_padding = {1, 1}}); }), HasSubstr("empty cache"));
}

TEST(BatchKVCache, StateSetsTheFillByItsLength) {
  const auto a = example_a();
  BatchKVCache b({0, 0, 0});
  b.set_state(a.keys(), a.values(), a.offsets(), a.left_padding());
  EXPECT_EQ(b.size(), 4);
  EXPECT_EQ(b.capacity(), 4);
  EXPECT_EQ(bits_of(b.make_mask(1)), bits_of(a.make_mask(1)));
  EXPECT_THAT(complaint([&] { b.set_state(a.keys(), a.values(), {3, 1, 3}, a.left_padding()); }), HasSubstr("add up"));
}

TEST(BatchKVCache, RefusesWhatDoesNotFit) {
  auto cache = example_a();
  EXPECT_THAT(complaint([&] { feed(cache, tokens(2, 1)); }), HasSubstr("[2, 1, 1, 2]"));
  EXPECT_THAT(complaint([&] { cache.update_and_fetch(mx::zeros({3, 2}), mx::zeros({3, 2})); }), HasSubstr("[3, 2]"));
  EXPECT_THAT(complaint([] { BatchKVCache({1, -1}); }), HasSubstr("negative padding -1"));
  EXPECT_THAT(complaint([] { BatchKVCache({}); }), HasSubstr("no rows"));
}

TEST(KVCache, MasksByNameUnlessAnArrayIsNeeded) {
  KVCache cache;
  feed(cache, tokens(1, 3));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(cache.make_mask(1)));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(cache.make_mask(1, true)));
  EXPECT_EQ(std::get<std::string>(cache.make_mask(2)), "causal");
  EXPECT_EQ(bits_of(std::get<mx::array>(cache.make_mask(2, true))), "11110 11111");
  EXPECT_EQ(bits_of(std::get<mx::array>(cache.make_mask(2, false, 2))), "00110 00011");
  EXPECT_EQ(cache_offset_to_int(cache.offset()), 3);
  EXPECT_EQ(cache.trim(5), 3);
  EXPECT_EQ(cache.size(), 0);
}

TEST(QuantizedKVCache, HoldsWhatQuantizeMakesOfThePlainOne) {
  KVCache plain;
  const auto keys = test::random({1, 2, 5, 64}, 1), values = test::random({1, 2, 5, 64}, 2);
  plain.update_and_fetch(keys, values);
  auto converted = plain.to_quantized({.group_size = 32, .bits = 8});
  EXPECT_EQ(converted.size(), 5);
  QuantizedKVCache fed({.group_size = 32, .bits = 8});
  fed.update_and_fetch(cut(keys, 2, 0, 3), cut(values, 2, 0, 3));
  const auto all = fed.update_and_fetch(cut(keys, 2, 3, 5), cut(values, 2, 3, 5));
  const auto& q = std::get<QuantizedArray>(all.keys);
  const auto back = mx::dequantize(q.packed, q.scales, q.biases, 32, 8);
  EXPECT_LT(test::largest_difference(back, keys), 0.03f);
  EXPECT_TRUE(same_bits(std::get<QuantizedArray>(converted.update_and_fetch(keys, values).keys).packed,
                        mx::concatenate({q.packed, q.packed}, 2)));
  EXPECT_EQ(converted.trim(20), 10);
  EXPECT_EQ(fed.quantization()->bits, 8);
  EXPECT_EQ(std::get<std::string>(fed.make_mask(2)), "causal");
  EXPECT_EQ(fed.nbytes(), 2 * 2 * 256 * (64 + 2 * 2 * 4));
}

TEST(ArraysCache, LeftPaddingCountsDownToAllValid) {
  ArraysCache cache(2, Ints{1, 3, 0});
  EXPECT_EQ(bits_of(*cache.make_mask(4)), "0111 0001 1111");
  cache.advance(4);
  EXPECT_EQ(*cache.left_padding(), (Ints{-3, -1, -4}));
  EXPECT_EQ(bits_of(*cache.make_mask(2)), "11 11 11");
}

TEST(ArraysCache, LengthsCountDownToAllPadding) {
  ArraysCache cache;
  EXPECT_FALSE(cache.make_mask(4).has_value());
  cache.prepare({4, 2, 3});
  EXPECT_EQ(bits_of(*cache.make_mask(4)), "1111 1100 1110");
  cache.advance(4);
  EXPECT_EQ(*cache.lengths(), (Ints{0, -2, -1}));
  EXPECT_EQ(bits_of(*cache.make_mask(2)), "00 00 00");
  cache.finalize();
  EXPECT_FALSE(cache.make_mask(2).has_value());
}

TEST(ArraysCache, LeftPaddingHasPriority) {
  ArraysCache cache(2, Ints{1, 0});
  cache.prepare({1, 1});
  EXPECT_EQ(bits_of(*cache.make_mask(3)), "011 111");
}

TEST(ArraysCache, RowsMoveWithTheirCounters) {
  ArraysCache cache(2, Ints{1, 3, 0});
  cache.set(0, ints({10, 11, 12}, {3, 1}));
  cache.set(1, ints({20, 21, 22}, {3, 1}));
  cache.filter({2, 0});
  EXPECT_EQ(ints_of(*cache[1]), (Ints{22, 20}));
  EXPECT_EQ(*cache.left_padding(), (Ints{0, 1}));
  ArraysCache other;
  other.set(0, ints({30}, {1, 1}));
  cache.extend(other);
  EXPECT_EQ(ints_of(*cache[0]), (Ints{12, 10, 30}));
  EXPECT_EQ(ints_of(*cache[1]), (Ints{22, 20, 0}));
  EXPECT_EQ(*cache.left_padding(), (Ints{0, 1, 0}));
  EXPECT_EQ(ints_of(*cache.extract(1)[0]), (Ints{10}));
  EXPECT_FALSE(ArraysCache::trimmable());
}

TEST(ArraysCache, MergesRowsWithZerosForMissingSlots) {
  ArraysCache a, b, none;
  a.set(0, ints({1}, {1, 1}));
  b.set(0, ints({2}, {1, 1}));
  b.set(1, ints({3}, {1, 1}));
  const ArraysCache* members[] = {&a, &none, &b};
  const auto merged = ArraysCache::merge(members);
  EXPECT_EQ(ints_of(*merged[0]), (Ints{1, 0, 2}));
  EXPECT_EQ(ints_of(*merged[1]), (Ints{0, 0, 3}));
  EXPECT_FALSE(merged.left_padding().has_value());
  const ArraysCache* empties[] = {&none, &none};
  EXPECT_EQ(*ArraysCache::merge(empties).left_padding(), (Ints{0, 0}));
}

TEST(ArraysCache, ExtendRefusesALengthThatWouldMaskARow) {
  ArraysCache a, b;
  a.prepare({2});
  EXPECT_THAT(complaint([&] { a.extend(b); }), HasSubstr("finalize()"));
}

}  // namespace
}  // namespace tutti::compat
