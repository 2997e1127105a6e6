// Attention masks: the causal one of left-padded rows, and the cut to the keys that exist.
#pragma once

#include <mlx/array.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compat/cache.h"

namespace tutti::compat {

// None, a sentinel ("causal", "left_padded_decode"), or a bool or additive array whose last axis is the keys.
using Mask = std::variant<std::monostate, std::string, mx::array>;
inline constexpr const char* kLeftPaddedDecode = "left_padded_decode";

struct CausalMask {
  int queries = 1, offset = 0;     // query i stands at column offset + i
  std::optional<int> window = {};  // only the last `window` keys up to the query's own
  std::vector<int> left_padding = {};
};
// bool [queries, offset + queries], or [B, 1, queries, offset + queries] with left padding: true where query i may see
// key j: j <= offset + i, j >= left_padding[b], j > offset + i - window.
mx::array causal_mask(const CausalMask& m);

// Number of keys after the update as the seed counts it: length + offset + 1 with a cache (one too many, inherited:
// only good as a bound that is clamped), length without one. keys [B, G, length, D].
int64_t kv_seq_len(const mx::array& keys, bool has_cache, int64_t offset);

// The mask's last axis cut to [0, bound), clamped to what there is. The bound is the cache's fill + length for a cache
// with left padding, else kv_seq_len (the maximum of an array, which is evaluated). Call before the cache is updated.
// None and sentinels pass.
Mask slice_attention_mask(const Mask& mask, const AttentionCache* cache,
                          const std::variant<int64_t, mx::array>& kv_seq_len, int length);

}  // namespace tutti::compat
