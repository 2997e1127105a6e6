#include "compat/attention.h"

#include <gmock/gmock.h>

#include <cmath>

#include "arrays.h"
#include "compat/batch_kv_cache.h"

namespace tutti::compat {
namespace {

using test::complaint;
using test::Ints;
using test::random;
using test::row;
using test::same_bits;
using testing::HasSubstr;

constexpr int kHeads = 4, kKvHeads = 2, kDim = 32, kHidden = 48, kRotary = 16;

Linear linear(int out, int in, uint64_t seed) {
  const auto w = mx::transpose(random({out, in}, seed)) * mx::array(1.0f / std::sqrt(static_cast<float>(in)));
  return [w](const mx::array& x) { return mx::matmul(x, w); };
}
Linear norm() {
  return [](const mx::array& x) { return x * mx::rsqrt(mx::mean(x * x, -1, true) + mx::array(1e-6f)); };
}

RotaryTables tables_of(const mx::array& ids) {  // text: the first of the three axes
  std::vector<float> frequencies;
  for (int i = 0; i < kRotary / 2; ++i) frequencies.push_back(std::pow(10000.0f, -2.0f * i / kRotary));
  const auto f = mx::array(frequencies.begin(), {1, 1, kRotary / 2});
  const auto angle = mx::expand_dims(mx::astype(row(ids, 0), mx::float32), 3) * f;  // [1, B, L, half]
  const auto both = mx::squeeze(mx::concatenate({angle, angle}, -1), 0);
  return {mx::cos(both), mx::sin(both)};
}
mx::array rotated(const mx::array& x, const RotaryTables& t) {
  const auto turning = cut(x, 3, 0, kRotary), rest = cut(x, 3, kRotary, kDim);
  const auto half = mx::concatenate({-cut(turning, 3, kRotary / 2, kRotary), cut(turning, 3, 0, kRotary / 2)}, 3);
  return mx::concatenate({turning * mx::expand_dims(t.cos, 1) + half * mx::expand_dims(t.sin, 1), rest}, 3);
}

AttentionLayer layer() {
  return {
      .heads = kHeads,
      .kv_heads = kKvHeads,
      .scale = 1.0f / std::sqrt(static_cast<float>(kDim)),
      .q_proj = linear(kHeads * kDim * 2, kHidden, 1),
      .k_proj = linear(kKvHeads * kDim, kHidden, 2),
      .v_proj = linear(kKvHeads * kDim, kHidden, 3),
      .o_proj = linear(kHidden, kHeads * kDim, 4),
      .q_norm = norm(),
      .k_norm = norm(),
      .rotary = {.apply_rotary = {}, .tables = [](const mx::array&, const mx::array& ids) { return tables_of(ids); }},
      .rotate = [](const mx::array& q, const mx::array& k, const RotaryTables& t) {
        return Rotated{rotated(q, t), rotated(k, t)};
      }};
}

struct Row {
  KVCache cache;
  mx::array last;  // output of the last call
};
// A row alone: a prompt, then tokens one at a time.
Row prefill(const AttentionLayer& l, const mx::array& x) {
  KVCache cache;
  const auto mask = cache.make_mask(x.shape(1));
  auto out = batched_attention(l, x, {.mask = mask, .cache = &cache});
  return {std::move(cache), out};
}
mx::array decode(const AttentionLayer& l, KVCache& cache, const mx::array& x) {
  return batched_attention(l, x, {.cache = &cache});
}

// Rows prefilled on their own and merged: the case in which the longest row's position is wrong for all others.
struct Merged {
  Merged(const AttentionLayer& l, const Ints& lengths) {
    std::vector<const KVCache*> members;
    uint64_t seed = 100;
    for (const int n : lengths) rows.push_back(prefill(l, random({1, n, kHidden}, ++seed)));
    for (const auto& r : rows) members.push_back(&r.cache);
    batch = BatchKVCache::merge(members);
  }
  std::vector<Row> rows;
  std::optional<BatchKVCache> batch;
};

TEST(BatchedAttention, MergedRowsDecodeAsAlone) {
  const auto l = layer();
  Merged merged(l, {7, 3, 12});
  const auto x = random({3, 1, kHidden}, 50);
  const auto out = batched_attention(l, x, {.mask = std::string(kLeftPaddedDecode), .cache = &*merged.batch});
  for (int b = 0; b < 3; ++b) {
    auto cache = merged.rows[static_cast<size_t>(b)].cache;
    EXPECT_LT(test::largest_difference(row(out, b), decode(l, cache, row(x, b))), 1e-5f) << b;
  }
}

TEST(BatchedAttention, TheLongestRulesPositionsAreWrongForMergedRows) {
  auto l = layer();
  Merged merged(l, {7, 3});
  const auto x = random({2, 1, kHidden}, 50);
  l.positions = PositionRule::longest;
  const auto out = batched_attention(l, x, {.mask = std::string(kLeftPaddedDecode), .cache = &*merged.batch});
  auto longest = merged.rows[0].cache, shorter = merged.rows[1].cache;
  EXPECT_LT(test::largest_difference(row(out, 0), decode(l, longest, row(x, 0))), 1e-5f);
  EXPECT_GT(test::largest_difference(row(out, 1), decode(l, shorter, row(x, 1))), 1e-3f);
}

// A batch padded once on the left and stepped together: prompts, then a token.
TEST(BatchedAttention, LeftPaddedPromptsAsAlone) {
  const auto l = layer();
  const auto x = random({2, 7, kHidden}, 60), next = random({2, 1, kHidden}, 61);
  BatchKVCache batch({0, 4});
  const auto prompt = batched_attention(l, x, {.mask = batch.make_mask(7), .cache = &batch});
  const auto step = batched_attention(l, next, {.mask = batch.make_mask(1), .cache = &batch});
  for (int b = 0; b < 2; ++b) {
    const int pad = b == 0 ? 0 : 4;
    auto alone = prefill(l, cut(row(x, b), 1, pad, 7));
    EXPECT_LT(test::largest_difference(cut(row(prompt, b), 1, pad, 7), alone.last), 1e-5f) << b;
    EXPECT_LT(test::largest_difference(row(step, b), decode(l, alone.cache, row(next, b))), 1e-5f) << b;
  }
}

TEST(BatchedAttention, ABlockUnderVerificationHasTheBitsOfTokensOneByOne) {
  const auto l = layer();
  for (const int length : {2, 5}) {
    Merged merged(l, {7, 3, 7});
    auto stepped = *merged.batch;
    const auto x = random({3, length, kHidden}, 70);
    const auto block = batched_attention(
        l, x, {.mask = merged.batch->make_mask(length), .cache = &*merged.batch, .target_verify = true});
    for (int t = 0; t < length; ++t) {
      const auto one =
          batched_attention(l, cut(x, 1, t, t + 1), {.mask = std::string(kLeftPaddedDecode), .cache = &stepped});
      EXPECT_TRUE(same_bits(cut(block, 1, t, t + 1), one)) << "token " << t;
    }
  }
}

TEST(BatchedAttention, AnUnpaddedBlockUnderVerificationToo) {
  const auto l = layer();
  auto alone = prefill(l, random({1, 6, kHidden}, 80));
  auto stepped = alone.cache;
  const auto x = random({1, 4, kHidden}, 81);
  const auto mask = alone.cache.make_mask(4);
  const auto block = batched_attention(l, x, {.mask = mask, .cache = &alone.cache, .target_verify = true});
  for (int t = 0; t < 4; ++t) {
    EXPECT_TRUE(same_bits(cut(block, 1, t, t + 1), decode(l, stepped, cut(x, 1, t, t + 1)))) << t;
  }
}

TEST(BatchedAttention, StalePositionsAreRecomputed) {
  const auto l = layer();
  auto a = prefill(l, random({1, 17, kHidden}, 90));
  auto b = a.cache;
  const auto x = random({1, 11, kHidden}, 91);
  const PositionInputs stale{mx::zeros({3, 1, 28}, mx::int32),
                             RotaryTables{mx::zeros({1, 28, 16}), mx::zeros({1, 28, 16})}};
  const auto mask = b.make_mask(11);
  const auto out = batched_attention(l, x, {.mask = mask, .cache = &a.cache, .positions = stale});
  EXPECT_TRUE(same_bits(out, batched_attention(l, x, {.mask = mask, .cache = &b})));
}

TEST(BatchedAttention, GivenTablesAreUsed) {
  const auto l = layer();
  const auto x = random({1, 13, kHidden}, 92);
  const auto far = tables_of(position_ids_for_offset(5, 13));
  KVCache a, b;
  const Mask causal = std::string("causal");
  const auto out =
      batched_attention(l, x, {.mask = causal, .cache = &a, .positions = {{}, far}, .target_verify = true});
  EXPECT_EQ(out.shape(), (mx::Shape{1, 13, kHidden}));
  batched_attention(l, x, {.mask = causal, .cache = &b, .positions = {position_ids_for_offset(5, 13), {}}});
  EXPECT_LT(test::largest_difference(a.keys(), b.keys()), 1e-5f);
  KVCache c;
  batched_attention(l, x, {.mask = causal, .cache = &c});
  EXPECT_GT(test::largest_difference(a.keys(), c.keys()), 1e-2f);
}

TEST(BatchedAttention, TheSentinelNeverAttendsPadding) {
  auto l = layer();
  const auto x = random({2, 1, kHidden}, 50);
  const Mask sentinel = std::string(kLeftPaddedDecode);
  Merged exact(l, {7, 3}), fallback(l, {7, 3});
  const auto want = batched_attention(l, x, {.mask = sentinel, .cache = &*exact.batch});
  l.padded_attention = default_target_verify_left_padded_attention;  // a host that can't serve
  const auto out = batched_attention(l, x, {.mask = sentinel, .cache = &*fallback.batch});
  EXPECT_LT(test::largest_difference(out, want), 1e-5f);
  KVCache plain;
  EXPECT_THAT(complaint([&] { batched_attention(l, x, {.mask = sentinel, .cache = &plain}); }),
              HasSubstr("no left padding"));
}

TEST(BatchedAttention, WithoutACache) {
  const auto l = layer();
  const auto x = random({1, 5, kHidden}, 93);
  const auto out = batched_attention(l, x, {.mask = std::string("causal")});
  EXPECT_LT(test::largest_difference(out, prefill(l, x).last), 1e-6f);
}

TEST(BatchedAttention, MasksAreCutAndNarrowOnesRefused) {
  const auto l = layer();
  auto a = prefill(l, random({1, 6, kHidden}, 94));
  auto b = a.cache, c = a.cache;
  const auto x = random({1, 2, kHidden}, 95);
  const auto mask = std::get<mx::array>(a.cache.make_mask(2, true));
  const auto wide = mx::concatenate({mask, mx::ones({2, 3}, mx::bool_)}, 1);
  EXPECT_TRUE(same_bits(batched_attention(l, x, {.mask = wide, .cache = &a.cache}),
                        batched_attention(l, x, {.mask = mask, .cache = &b})));
  EXPECT_THAT(complaint([&] { batched_attention(l, x, {.mask = cut(mask, 1, 0, 7), .cache = &c}); }),
              HasSubstr("mask [2, 7] for 2 queries and 8 keys"));
  EXPECT_THAT(complaint([&] {
                batched_attention(l, row(x, 0), {});
                batched_attention(l, mx::zeros({2, 3}), {});
              }),
              HasSubstr("[2, 3]"));
}

TEST(BatchedAttention, QuantisedCache) {
  const auto l = layer();
  const auto x = random({1, 6, kHidden}, 96), next = random({1, 1, kHidden}, 97);
  QuantizedKVCache quantised({.group_size = 32, .bits = 8});
  const auto mask = quantised.make_mask(6);
  auto alone = prefill(l, x);
  const auto out = batched_attention(l, x, {.mask = mask, .cache = &quantised});
  EXPECT_LT(test::largest_difference(out, alone.last), 0.05f);
  EXPECT_LT(test::largest_difference(batched_attention(l, next, {.cache = &quantised}), decode(l, alone.cache, next)),
            0.05f);
}

TEST(TargetVerifyLinears, DefaultTakesTheBlockAndExactEachToken) {
  int calls = 0;
  const std::vector<Linear> linears(2, [&](const mx::array& x) {
    ++calls;
    return x;
  });
  const auto x = random({2, 3, 4}, 1);
  EXPECT_EQ(default_target_verify_linears(linears, x, true).size(), 2u);
  EXPECT_EQ(calls, 2);
  const auto exact = exact_target_verify_linears(linears, x, true);
  EXPECT_EQ(calls, 2 + 6);
  EXPECT_TRUE(same_bits(exact[1], x));
  exact_target_verify_linears(linears, x, false);
  EXPECT_EQ(calls, 2 + 6 + 2);
  EXPECT_TRUE(default_target_verify_linears({}, x, true).empty());
}

}  // namespace
}  // namespace tutti::compat
