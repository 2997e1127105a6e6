#include "compat/masks.h"

#include <mlx/ops.h>

#include <algorithm>

namespace tutti::compat {

mx::array causal_mask(const CausalMask& m) {
  require(m.queries >= 0 && m.offset >= 0, "causal_mask",
          "negative length: " + std::to_string(m.queries) + " queries from " + std::to_string(m.offset));
  const int keys = m.offset + m.queries;
  const auto query = mx::expand_dims(mx::arange(m.offset, keys), 1);
  const auto key = mx::expand_dims(mx::arange(keys), 0);
  auto mask = mx::less_equal(key, query);
  if (m.window) mask = mx::logical_and(mask, mx::greater(key, query - mx::array(*m.window)));
  if (!m.left_padding.empty()) {
    const auto padding = mx::expand_dims(int_array(m.left_padding), {1, 2, 3});
    mask = mx::logical_and(mask, mx::less_equal(padding, key));
  }
  return mask;
}

int64_t kv_seq_len(const mx::array& keys, bool has_cache, int64_t offset) {
  const int64_t length = time_length(keys);
  return has_cache ? length + offset + 1 : length;
}

Mask slice_attention_mask(const Mask& mask, const AttentionCache* cache,
                          const std::variant<int64_t, mx::array>& kv_seq_len, int length) {
  const auto* array = std::get_if<mx::array>(&mask);
  if (array == nullptr) return mask;
  require(length >= 0, "slice_attention_mask", "negative length " + std::to_string(length));
  require(array->ndim() > 0, "slice_attention_mask", "mask is a scalar");
  int64_t bound = 0;
  if (const auto fill = cache != nullptr ? cache->fill() : std::nullopt) {
    bound = int64_t{*fill} + length;
  } else if (const auto* n = std::get_if<int64_t>(&kv_seq_len)) {
    bound = *n;
  } else {
    bound = cache_offset_to_int(CacheOffset(std::get<mx::array>(kv_seq_len)));
  }
  return cut(*array, -1, 0, static_cast<int>(std::clamp<int64_t>(bound, 0, array->shape(-1))));
}

}  // namespace tutti::compat
