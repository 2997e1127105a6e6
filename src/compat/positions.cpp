#include "compat/positions.h"

#include <mlx/ops.h>

#include <limits>

namespace tutti::compat {
namespace {

void require_length(const char* function, int length) {
  require(length >= 0, function, "negative length " + std::to_string(length));
}

mx::array on_three_axes(const mx::array& ids) {  // [B, L] → [3, B, L]
  return mx::broadcast_to(mx::expand_dims(ids, 0), {3, ids.shape(0), ids.shape(1)});
}

mx::array as_int32(const mx::array& offset) {
  return mx::astype(offset, mx::int32);
}

}  // namespace

PositionInputs normalize_position_inputs(PositionInputs inputs, int length) {
  require_length("normalize_position_inputs", length);
  if (!inputs.ids) return inputs;
  require(inputs.ids->ndim() > 0, "normalize_position_inputs", "position_ids is a scalar");
  if (inputs.ids->shape(-1) == length) return inputs;
  return {};
}

mx::array position_ids_for_offset(int64_t offset, int length) {
  require_length("position_ids_for_offset", length);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  require(offset >= -kMost && offset <= kMost - length, "position_ids_for_offset",
          "offset " + std::to_string(offset) + " is out of range");
  return position_ids_for_offset(mx::array(static_cast<int>(offset)), length);
}

mx::array position_ids_for_offset(const mx::array& offset, int length) {
  require_length("position_ids_for_offset", length);
  require(offset.ndim() == 0, "position_ids_for_offset", "offset has shape " + text_of(offset.shape()));
  return on_three_axes(mx::expand_dims(as_int32(offset) + mx::arange(length), 0));
}

mx::array row_position_ids(const mx::array& offsets, int length) {
  require_length("row_position_ids", length);
  require(offsets.ndim() == 1, "row_position_ids", "offsets have shape " + text_of(offsets.shape()) + ", expected [B]");
  const auto ids = mx::expand_dims(as_int32(offsets), 1) + mx::expand_dims(mx::arange(length), 0);
  return on_three_axes(mx::maximum(ids, mx::array(0)));
}

mx::array next_position_ids(const std::optional<CacheOffset>& offset, int length, PositionRule rule) {
  const auto* array = offset ? std::get_if<mx::array>(&*offset) : nullptr;
  const auto* rows = offset ? std::get_if<std::vector<int>>(&*offset) : nullptr;
  const bool many = (array != nullptr && array->ndim() > 0) || rows != nullptr;
  if (!many) {
    return array != nullptr ? position_ids_for_offset(*array, length)
                            : position_ids_for_offset(cache_offset_to_int(offset), length);
  }
  const auto offsets = array != nullptr ? mx::flatten(*array) : int_array(*rows);
  require(offsets.size() > 0, "next_position_ids", "offset has no rows");
  return rule == PositionRule::per_row ? row_position_ids(offsets, length)
                                       : position_ids_for_offset(mx::max(offsets), length);
}

Rotated apply_rotary(const Rotary& rotary, const RotaryInput& in, const RotateFunction& rotate) {
  if (in.embeddings) return rotate(in.queries, in.keys, *in.embeddings);
  if (rotary.apply_rotary) return rotary.apply_rotary(in.queries, in.keys, in.position_ids, 1);
  return rotate(in.queries, in.keys, rotary.tables(in.values, in.position_ids));
}

}  // namespace tutti::compat
