// What the attention call asks of a cache, whoever wrote it.
#pragma once

#include <mlx/array.h>

#include <optional>
#include <variant>
#include <vector>

#include "compat/checks.h"

namespace tutti::compat {

struct NoOffset {};  // a cache object that has no offset member
struct BadOffset {   // one whose offset is nothing that converts to an integer
  std::string type;
};
// The offset as a cache states it: a host integer or float, one host integer per row, or an array of any rank.
using CacheOffset = std::variant<NoOffset, BadOffset, int64_t, double, std::vector<int>, mx::array>;

// An affine quantisation along the last axis: packed [B, G, S, D·bits/32] uint32, scales and biases [B, G, S, D/group].
struct QuantizedArray {
  mx::array packed, scales, biases;
};
// Keys or values as a cache returns them: [B, G, S, D].
using CachedArray = std::variant<mx::array, QuantizedArray>;
struct KeysValues {
  CachedArray keys, values;
};
struct Quantization {
  int group_size, bits;
};

// S of cached keys or values.
int time_length(const CachedArray& cached);
// Their tokens [begin, end).
CachedArray cut_time(const CachedArray& cached, int begin, int end);

class AttentionCache {
 public:
  virtual ~AttentionCache() = default;
  virtual CacheOffset offset() const = 0;
  // Number of columns that all rows share, before the next update; only caches with left padding have one.
  virtual std::optional<int> fill() const { return std::nullopt; }
  // Padding before each row's first token; empty for a cache that has none. May force the evaluation of a host's array.
  virtual std::vector<int> left_padding() const { return {}; }
  virtual std::optional<Quantization> quantization() const { return std::nullopt; }
  // Appends keys and values [B, G, n, D] and returns all.
  virtual KeysValues update_and_fetch(const mx::array& keys, const mx::array& values) = 0;
};

// cache.offset as one integer: 0 without a cache, a host number as it is (floats are truncated toward zero), the
// maximum of an array. Evaluates an array, changes nothing. Throws for NoOffset, BadOffset and an empty array.
int64_t cache_offset_to_int(const std::optional<CacheOffset>& offset);

}  // namespace tutti::compat
