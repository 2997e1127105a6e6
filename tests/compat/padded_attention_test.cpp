#include "compat/padded_attention.h"

#include <gmock/gmock.h>

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

constexpr int kHeads = 4, kKvHeads = 2, kDim = 64;
constexpr float kScale = 0.125f;

// Rows of their own lengths: keys and values alone, and together in a left-padded batch with more capacity than tokens.
struct Rows {
  Rows(const Ints& lengths, uint64_t seed) : lengths(lengths) {
    std::vector<const KVCache*> members;
    for (const int n : lengths) {
      KVCache one;
      seed += 2;
      one.update_and_fetch(random({1, kKvHeads, n, kDim}, seed), random({1, kKvHeads, n, kDim}, seed + 1));
      alone.push_back(one);
    }
    for (const auto& one : alone) members.push_back(&one);
    batch = BatchKVCache::merge(members);
  }
  // `n` new tokens for every row, into both.
  KeysValues append(int n, uint64_t seed) {
    const auto keys = random({static_cast<int>(lengths.size()), kKvHeads, n, kDim}, seed);
    const auto values = random(keys.shape(), seed + 1);
    for (size_t b = 0; b < alone.size(); ++b) {
      alone[b].update_and_fetch(row(keys, static_cast<int>(b)), row(values, static_cast<int>(b)));
    }
    return batch->update_and_fetch(keys, values);
  }
  // The row alone, its tokens one at a time: queries [1, H, L, D].
  mx::array one_by_one(int b, const mx::array& queries) const {
    std::vector<mx::array> out;
    const int L = queries.shape(2), S = alone[static_cast<size_t>(b)].size();
    const KeysValues all{alone[static_cast<size_t>(b)].keys(), alone[static_cast<size_t>(b)].values()};
    for (int i = 0; i < L; ++i) {
      const KeysValues seen{cut_time(all.keys, 0, S - L + i + 1), cut_time(all.values, 0, S - L + i + 1)};
      out.push_back(dot_product_attention({cut(queries, 2, i, i + 1), seen, {}, kScale}));
    }
    return mx::concatenate(out, 2);
  }
  Ints lengths;
  std::vector<KVCache> alone;
  std::optional<BatchKVCache> batch;
};

void expect_rows_as_alone(const Ints& lengths, int length, bool with_mask) {
  Rows rows(lengths, static_cast<uint64_t>(length) * 100);
  const Mask mask = with_mask ? Mask(rows.batch->make_mask(length)) : Mask{};
  const auto cached = rows.append(length, 7);
  const auto queries = random({static_cast<int>(lengths.size()), kHeads, length, kDim}, 9);
  const auto out = exact_left_padded_attention({queries, cached, mask, kScale}, &*rows.batch);
  ASSERT_TRUE(out.has_value());
  for (int b = 0; b < static_cast<int>(lengths.size()); ++b) {
    EXPECT_TRUE(same_bits(row(*out, b), rows.one_by_one(b, row(queries, b))))
        << "row " << b << " of " << lengths.size() << ", " << length << " tokens";
  }
}

TEST(LeftPaddedAttention, DecodeHasTheBitsOfEachRowAlone) {
  for (const auto& lengths : std::vector<Ints>{{7, 3}, {3, 7}, {5, 5}, {1, 9, 1, 4, 9}, {300, 40, 257}}) {
    expect_rows_as_alone(lengths, 1, false);
  }
}

TEST(LeftPaddedAttention, VerifyHasTheBitsOfTokensOneByOne) {
  for (const int length : {2, 3, 8}) {
    expect_rows_as_alone({7, 3}, length, false);
    expect_rows_as_alone({7, 3, 7, 5, 3}, length, true);
    expect_rows_as_alone({300, 40, 257}, length, true);
  }
}

TEST(LeftPaddedAttention, ARowWithNoTokensYetSeesItself) {
  expect_rows_as_alone({4, 0}, 2, false);
}

TEST(LeftPaddedAttention, AgreesWithTheMaskedAttention) {
  Rows rows({6, 2, 4}, 1);
  const auto mask = rows.batch->make_mask(3);
  const auto cached = rows.append(3, 5);
  const auto queries = random({3, kHeads, 3, kDim}, 6);
  const auto exact = exact_left_padded_attention({queries, cached, {}, kScale}, &*rows.batch);
  const auto masked = dot_product_attention({queries, cached, mask, kScale});
  EXPECT_LT(test::largest_difference(*exact, masked), 1e-5f);
  EXPECT_LT(test::largest_difference(
                *exact, dot_product_attention({queries, cached, left_padded_mask({0, 4, 2}, 3, 9), kScale})),
            1e-5f);
  // Without a mask, padded keys would be attended.
  EXPECT_GT(test::largest_difference(*exact, dot_product_attention({queries, cached, std::string("causal"), kScale})),
            1e-2f);
}

TEST(LeftPaddedAttention, HonoursAMaskThatHidesMore) {
  Rows rows({6, 2}, 1);
  const auto cached = rows.append(2, 5);
  const auto queries = random({2, kHeads, 2, kDim}, 6);
  const auto hidden = mx::not_equal(mx::expand_dims(mx::arange(8), {0, 1, 2}), mx::array(7));  // not the last key
  const auto base = left_padded_mask({0, 4}, 2, 8);
  const auto mask = mx::logical_and(base, hidden);
  const auto exact = left_padded_attention({queries, cached, mask, kScale}, {0, 4});
  EXPECT_LT(test::largest_difference(exact, dot_product_attention({queries, cached, mask, kScale})), 1e-5f);
  EXPECT_GT(test::largest_difference(exact, left_padded_attention({queries, cached, base, kScale}, {0, 4})), 1e-3f);
}

TEST(LeftPaddedAttention, ServesQuantisedKeys) {
  Rows rows({6, 2}, 1);
  const auto plain = rows.append(2, 5);
  const auto quantised = [](const CachedArray& x) {
    const auto parts = mx::quantize(std::get<mx::array>(x), 32, 8);
    return QuantizedArray{parts[0], parts[1], parts[2]};
  };
  const KeysValues cached{quantised(plain.keys), quantised(plain.values)};
  const auto queries = random({2, kHeads, 2, kDim}, 6);
  const Quantization q{.group_size = 32, .bits = 8};
  const auto exact = left_padded_attention({queries, cached, {}, kScale, q}, {0, 4});
  const auto masked = dot_product_attention({queries, cached, left_padded_mask({0, 4}, 2, 8), kScale, q});
  EXPECT_LT(test::largest_difference(exact, masked), 1e-5f);
  EXPECT_LT(test::largest_difference(exact, left_padded_attention({queries, plain, {}, kScale}, {0, 4})), 0.05f);
  const auto causal = dot_product_attention({queries, cached, std::string("causal"), kScale, q});
  EXPECT_LT(test::largest_difference(row(exact, 0), row(causal, 0)), 1e-5f);
  EXPECT_THAT(complaint([&] { left_padded_attention({queries, cached, {}, kScale}, {0, 4}); }), HasSubstr("bits"));
}

TEST(LeftPaddedAttention, RefusesWhatDoesNotFit) {
  Rows rows({6, 2}, 1);
  const auto cached = rows.append(1, 5);
  const auto queries = random({2, kHeads, 1, kDim}, 6);
  const auto attend = [&](const mx::array& q, const Mask& mask, const Ints& pads) {
    return complaint([&] { left_padded_attention({q, cached, mask, kScale}, pads); });
  };
  EXPECT_THAT(attend(queries, {}, {0}), HasSubstr("1 paddings"));
  EXPECT_THAT(attend(queries, {}, {0, 7}), HasSubstr("padding 7 of row 1"));
  EXPECT_THAT(attend(queries, {}, {0, -1}), HasSubstr("padding -1"));
  EXPECT_THAT(attend(random({2, 3, 1, kDim}, 6), {}, {0, 4}), HasSubstr("[2, 3, 1, 64]"));
  EXPECT_THAT(attend(random({2, kDim}, 6), {}, {0, 4}), HasSubstr("[2, 64]"));
  EXPECT_THAT(attend(queries, mx::ones({2, 1, 1, 6}, mx::bool_), {0, 4}), HasSubstr("[2, 1, 1, 6]"));
  EXPECT_THAT(complaint([&] { dot_product_attention({queries, cached, mx::ones({2, 1, 1, 6}, mx::bool_), kScale}); }),
              HasSubstr("7 keys"));
  EXPECT_THAT(complaint([&] { dot_product_attention({queries, cached, std::string("left_padded_decode"), kScale}); }),
              HasSubstr("unknown mask"));
}

TEST(MaybeTargetVerifyAttention, AsksTheHelperByTheTable) {
  const auto queries = mx::zeros({1, 1, 1, 4});
  const KeysValues cached{queries, queries};
  const Mask mask;
  int asked = 0;
  const PaddedAttention helper = [&](const AttentionInput&, const AttentionCache*) -> std::optional<mx::array> {
    ++asked;
    return std::nullopt;
  };
  const auto asks = [&](bool verify, int length, bool padded) {
    asked = 0;
    const auto out =
        maybe_target_verify_attention({queries, cached, mask, 1.0f}, nullptr, {verify, length, padded}, helper);
    EXPECT_FALSE(out.has_value());
    return asked;
  };
  EXPECT_EQ(asks(false, 1, false), 0);
  EXPECT_EQ(asks(false, 5, false), 0);
  EXPECT_EQ(asks(true, 1, false), 0);
  EXPECT_EQ(asks(true, 2, false), 1);
  EXPECT_EQ(asks(false, 1, true), 1);
  EXPECT_EQ(asks(true, 4, true), 1);
  EXPECT_FALSE(default_target_verify_left_padded_attention({queries, cached, mask, 1.0f}, nullptr).has_value());
}

}  // namespace
}  // namespace tutti::compat
