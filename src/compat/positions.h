// Positions of the tokens of an attention call, and the rotary step.
#pragma once

#include <mlx/array.h>

#include <functional>
#include <optional>
#include <utility>

#include "compat/cache.h"

namespace tutti::compat {

struct RotaryTables {
  mx::array cos, sin;  // [B, L, rotary_dim]
};
struct PositionInputs {
  std::optional<mx::array> ids;
  std::optional<RotaryTables> embeddings;
};

// Positions of another call (their last axis isn't `length` long) are dropped, and with them the tables that were
// computed from them; everything else passes. Only the last axis is looked at. The attention call logs what was
// dropped.
PositionInputs normalize_position_inputs(PositionInputs inputs, int length);

// [3, 1, length]: offset + t on every axis; int32. One row of positions for all rows: right for one row, or for rows
// that share their frame of columns.
mx::array position_ids_for_offset(int64_t offset, int length);
// The same of a scalar array, without evaluating it.
mx::array position_ids_for_offset(const mx::array& offset, int length);

// [3, B, length]: row b's token t is at max(offsets[b] + t, 0). offsets [B] is the number of real tokens before the
// call, negative while padding is still to come, so that a row's first real token is at 0. Nothing is evaluated.
mx::array row_position_ids(const mx::array& offsets, int length);

// Each row from its own length, or all rows from the longest as the seed did (wrong for rows of separate prefills).
enum class PositionRule { per_row, longest };
// Positions of the next `length` tokens after a cache. Evaluates nothing.
mx::array next_position_ids(const std::optional<CacheOffset>& offset, int length, PositionRule rule);

using Rotated = std::pair<mx::array, mx::array>;  // queries, keys
using RotateFunction = std::function<Rotated(const mx::array& q, const mx::array& k, const RotaryTables&)>;
// A host's rotary embedding.
struct Rotary {
  // The fused way: (q, k, position_ids, unsqueeze_dim). May be empty.
  std::function<Rotated(const mx::array&, const mx::array&, const mx::array&, int)> apply_rotary;
  // (values, position_ids) → tables; values give the dtype only.
  std::function<RotaryTables(const mx::array&, const mx::array&)> tables;
};
struct RotaryInput {
  const mx::array &queries, &keys, &values;  // [B, heads, L, D]
  const mx::array& position_ids;
  const std::optional<RotaryTables>& embeddings;
};
// By the given tables; else by the fused way if there is one; else by tables made from the positions.
Rotated apply_rotary(const Rotary& rotary, const RotaryInput& in, const RotateFunction& rotate);

}  // namespace tutti::compat
