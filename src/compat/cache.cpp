#include "compat/cache.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>

namespace tutti::compat {
namespace {

constexpr const char* kOffset = "cache_offset_to_int";

int64_t integer_of(double value) {
  require(std::isfinite(value), kOffset, "offset is not finite");
  return static_cast<int64_t>(value);
}

int64_t integer_of(const mx::array& value) {
  require(value.size() > 0, kOffset, "offset is an empty array of shape " + text_of(value.shape()));
  auto largest = value.ndim() > 0 ? mx::max(value) : value;
  if (mx::issubdtype(largest.dtype(), mx::floating)) {
    largest = mx::astype(largest, mx::float32);
    return integer_of(static_cast<double>(largest.item<float>()));
  }
  require(mx::issubdtype(largest.dtype(), mx::integer) || largest.dtype() == mx::bool_, kOffset,
          "offset is an array of a type that is no number");
  largest = mx::astype(largest, mx::int64);
  return largest.item<int64_t>();
}

}  // namespace

int time_length(const CachedArray& cached) {
  const auto* plain = std::get_if<mx::array>(&cached);
  const auto& array = plain != nullptr ? *plain : std::get<QuantizedArray>(cached).packed;
  require(array.ndim() >= 2, "time_length", "keys have shape " + text_of(array.shape()) + ", expected [B, G, S, D]");
  return array.shape(-2);
}

CachedArray cut_time(const CachedArray& cached, int begin, int end) {
  if (const auto* plain = std::get_if<mx::array>(&cached)) return cut(*plain, -2, begin, end);
  const auto& q = std::get<QuantizedArray>(cached);
  return QuantizedArray{cut(q.packed, -2, begin, end), cut(q.scales, -2, begin, end), cut(q.biases, -2, begin, end)};
}

int64_t cache_offset_to_int(const std::optional<CacheOffset>& offset) {
  if (!offset) return 0;
  if (const auto* n = std::get_if<int64_t>(&*offset)) return *n;
  if (const auto* x = std::get_if<double>(&*offset)) return integer_of(*x);
  if (const auto* a = std::get_if<mx::array>(&*offset)) return integer_of(*a);
  if (const auto* rows = std::get_if<std::vector<int>>(&*offset)) {
    require(!rows->empty(), kOffset, "offset has no rows");
    return *std::max_element(rows->begin(), rows->end());
  }
  if (const auto* bad = std::get_if<BadOffset>(&*offset)) reject(kOffset, "offset is a " + bad->type + ", no number");
  reject(kOffset, "cache has no offset");
}

}  // namespace tutti::compat
