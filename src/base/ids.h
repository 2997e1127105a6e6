// Distinct integer types for what crosses rooms by number.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace tutti {

using TokenId = int32_t;

template <class Tag, class Int>
struct Id {
  Int value = -1;
  constexpr Id() = default;
  constexpr explicit Id(Int v) : value(v) {}
  constexpr bool valid() const { return value >= 0; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using SequenceId = Id<struct SequenceTag, int64_t>;  // one row: one choice of one request; never reused
using BlockId = Id<struct BlockTag, int32_t>;        // a block of kBlockTokens tokens in every paged layer
using SlotId = Id<struct SlotTag, int32_t>;          // the recurrent state of one sequence in every linear layer

}  // namespace tutti

template <class Tag, class Int>
struct std::hash<tutti::Id<Tag, Int>> {
  size_t operator()(tutti::Id<Tag, Int> id) const noexcept { return std::hash<Int>{}(id.value); }
};
