#include "compat/positions.h"

#include <gmock/gmock.h>

#include "arrays.h"
#include "compat/masks.h"

namespace tutti::compat {
namespace {

using test::complaint;
using test::Ints;
using test::ints;
using test::ints_of;
using testing::HasSubstr;

int64_t offset_of(CacheOffset offset) {
  return cache_offset_to_int(offset);
}

TEST(CacheOffsetToInt, KeepsHostNumbersAndTakesTheMaximumOfArrays) {
  EXPECT_EQ(cache_offset_to_int(std::nullopt), 0);
  EXPECT_EQ(offset_of(int64_t{7}), 7);
  EXPECT_EQ(offset_of(int64_t{-2}), -2);
  EXPECT_EQ(offset_of(mx::array(9)), 9);
  EXPECT_EQ(offset_of(ints({3, 1, 4}, {3})), 4);
  EXPECT_EQ(offset_of(ints({-1, -3, 0}, {3})), 0);
  EXPECT_EQ(offset_of(ints({-3, -1}, {2})), -1);
  EXPECT_EQ(offset_of(ints({2, 5}, {1, 2})), 5);
  EXPECT_EQ(offset_of(5.9), 5);
  EXPECT_EQ(offset_of(-5.9), -5);
  EXPECT_EQ(offset_of(mx::array(5.9f)), 5);
  EXPECT_EQ(offset_of(Ints{3, 1, 4}), 4);
}

TEST(CacheOffsetToInt, RefusesWhatIsNoOffset) {
  EXPECT_THAT(complaint([] { offset_of(NoOffset{}); }), HasSubstr("no offset"));
  EXPECT_THAT(complaint([] { offset_of(BadOffset{"str"}); }), HasSubstr("str"));
  EXPECT_THAT(complaint([] { offset_of(mx::zeros({0}, mx::int32)); }), HasSubstr("[0]"));
  EXPECT_THAT(complaint([] { offset_of(Ints{}); }), HasSubstr("no rows"));
  EXPECT_THAT(complaint([] { offset_of(std::nan("")); }), HasSubstr("finite"));
}

TEST(NormalizePositionInputs, DropsStalePositionsAndTheirTables) {
  const auto ids = [](mx::Shape shape) { return mx::zeros(shape, mx::int32); };
  const RotaryTables tables{mx::zeros({1, 13, 8}), mx::zeros({1, 13, 8})};
  const auto normal = [&](std::optional<mx::array> given, bool with_tables, int length) {
    const auto out = normalize_position_inputs({given, with_tables ? std::optional(tables) : std::nullopt}, length);
    return std::pair(out.ids.has_value(), out.embeddings.has_value());
  };
  EXPECT_EQ(normal(ids({3, 1, 11}), true, 11), std::pair(true, true));
  EXPECT_EQ(normal(ids({3, 1, 28}), true, 11), std::pair(false, false));
  EXPECT_EQ(normal(ids({3, 1, 11}), false, 1), std::pair(false, false));
  EXPECT_EQ(normal(std::nullopt, true, 13), std::pair(false, true));
  EXPECT_EQ(normal(std::nullopt, true, 4), std::pair(false, true));  // tables alone are not checked
  EXPECT_EQ(normal(ids({3, 2, 11}), false, 11), std::pair(true, false));
  EXPECT_EQ(normal(ids({11}), false, 11), std::pair(true, false));
  EXPECT_EQ(normal(ids({2, 11}), false, 11), std::pair(true, false));
  EXPECT_THAT(complaint([&] { normalize_position_inputs({mx::array(3), {}}, 1); }), HasSubstr("scalar"));
}

TEST(PositionIdsForOffset, CountsFromTheOffsetOnThreeAxes) {
  EXPECT_EQ(position_ids_for_offset(0, 3).shape(), (mx::Shape{3, 1, 3}));
  EXPECT_EQ(ints_of(position_ids_for_offset(0, 3)), (Ints{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(ints_of(position_ids_for_offset(5, 1)), (Ints{5, 5, 5}));
  EXPECT_EQ(ints_of(position_ids_for_offset(-1, 2)), (Ints{-1, 0, -1, 0, -1, 0}));
  EXPECT_EQ(position_ids_for_offset(4, 0).shape(), (mx::Shape{3, 1, 0}));
  EXPECT_TRUE(mx::issubdtype(position_ids_for_offset(0, 3).dtype(), mx::integer));
  EXPECT_THAT(complaint([] { position_ids_for_offset(0, -1); }), HasSubstr("negative length -1"));
}

TEST(RowPositionIds, CountEachRowFromItsOwnLength) {
  const auto ids = row_position_ids(ints({3, 5}, {2}), 2);
  EXPECT_EQ(ids.shape(), (mx::Shape{3, 2, 2}));
  EXPECT_EQ(ints_of(ids), (Ints{3, 4, 5, 6, 3, 4, 5, 6, 3, 4, 5, 6}));
  // A fresh left-padded prefill: the first real token of every row is at 0.
  EXPECT_EQ(ints_of(test::row(row_position_ids(ints({-1, -3, 0}, {3}), 4), 0)),
            (Ints{0, 0, 1, 2, 0, 0, 0, 0, 0, 1, 2, 3}));
  EXPECT_THAT(complaint([] { row_position_ids(mx::array(3), 2); }), HasSubstr("[B]"));
}

TEST(NextPositionIds, PerRowByDefaultAndTheLongestWhenAsked) {
  const auto next = [](std::optional<CacheOffset> offset, int length, PositionRule rule) {
    return ints_of(test::row(next_position_ids(offset, length, rule), 0));
  };
  EXPECT_EQ(next(std::nullopt, 2, PositionRule::per_row), (Ints{0, 1}));
  EXPECT_EQ(next(int64_t{7}, 1, PositionRule::per_row), (Ints{7}));
  EXPECT_EQ(next(mx::array(4), 2, PositionRule::per_row), (Ints{4, 5}));
  EXPECT_EQ(next(ints({3, 5}, {2}), 1, PositionRule::per_row), (Ints{3, 5}));
  EXPECT_EQ(next(Ints{3, 5}, 1, PositionRule::per_row), (Ints{3, 5}));
  EXPECT_EQ(next(ints({3, 5}, {2}), 1, PositionRule::longest), (Ints{5}));
}

TEST(NextPositionIds, DoNotEvaluateTheOffset) {
  const auto offset = ints({3, 5}, {2}) + mx::array(1);
  const auto scalar = mx::array(3) + mx::array(1);
  for (const auto rule : {PositionRule::per_row, PositionRule::longest}) {
    next_position_ids(CacheOffset(offset), 2, rule);
    next_position_ids(CacheOffset(scalar), 2, rule);
  }
  EXPECT_EQ(offset.status(), mx::array::Status::unscheduled);
  EXPECT_EQ(scalar.status(), mx::array::Status::unscheduled);
  cache_offset_to_int(CacheOffset(offset));  // the seed's way does
}

TEST(KvSeqLen, AddsOffsetAndOneWithACacheOnly) {
  EXPECT_EQ(kv_seq_len(mx::zeros({1, 2, 3, 8}), true, 10), 14);
  EXPECT_EQ(kv_seq_len(mx::zeros({1, 2, 3, 8}), false, 10), 3);
  EXPECT_EQ(kv_seq_len(mx::zeros({1, 2, 1, 8}), true, 0), 2);
  EXPECT_EQ(kv_seq_len(mx::zeros({1, 2, 4, 8}), true, -3), 2);
  EXPECT_THAT(complaint([] { kv_seq_len(mx::zeros({4}), true, 0); }), HasSubstr("[4]"));
}

// The three ways of apply_rotary, told apart by what they add to the queries.
TEST(ApplyRotary, TablesFirstThenTheFusedWayThenTablesFromPositions) {
  const auto q = mx::zeros({1, 2, 3, 4}), k = mx::zeros({1, 1, 3, 4}), v = k;
  const auto ids = position_ids_for_offset(0, 3);
  const RotateFunction rotate = [](const mx::array& a, const mx::array& b, const RotaryTables& t) {
    return Rotated{a + t.cos, b + t.sin};
  };
  int axis = -1;
  Rotary both{
      .apply_rotary =
          [&](const mx::array& a, const mx::array& b, const mx::array& p, int unsqueeze) {
            axis = unsqueeze;
            EXPECT_EQ(p.shape(), (mx::Shape{3, 1, 3}));
            return Rotated{a + mx::array(2.0f), b};
          },
      .tables = [](const mx::array&, const mx::array&) { return RotaryTables{mx::array(3.0f), mx::array(4.0f)}; }};
  const Rotary plain{.apply_rotary = {}, .tables = both.tables};
  const std::optional<RotaryTables> given = RotaryTables{mx::array(1.0f), mx::array(1.0f)}, none;
  const auto first = [](const Rotated& r) { return mx::max(r.first).item<float>(); };
  EXPECT_EQ(first(apply_rotary(both, {q, k, v, ids, given}, rotate)), 1.0f);
  EXPECT_EQ(axis, -1);
  EXPECT_EQ(first(apply_rotary(both, {q, k, v, ids, none}, rotate)), 2.0f);
  EXPECT_EQ(axis, 1);
  EXPECT_EQ(first(apply_rotary(plain, {q, k, v, ids, none}, rotate)), 3.0f);
}

}  // namespace
}  // namespace tutti::compat
