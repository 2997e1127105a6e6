// Attention over cached keys: the ordinary one, and the one for rows with left padding and for blocks under
// verification, whose numbers are those of each row alone, one token at a time.
#pragma once

#include <mlx/array.h>

#include <functional>
#include <optional>
#include <vector>

#include "compat/cache.h"
#include "compat/masks.h"

namespace tutti::compat {

struct AttentionInput {
  const mx::array& queries;  // [B, H, L, D]
  const KeysValues& cached;  // after the update, [B, G, S, D]
  const Mask& mask;          // [.., L or 1, S or 1]
  float scale;
  std::optional<Quantization> quantization = {};
};
// softmax(scale · q kᵀ + mask) v; quantised keys and values are multiplied as they are. Throws for a mask whose last
// axis isn't S, and for shapes that don't fit.
mx::array dot_product_attention(const AttentionInput& in);

// Row b sees the keys from pads[b] on, query i those up to S - L + i: never a padded key, and no mask is made for them.
// Rows of equal padding run together and each query alone, in exactly the shapes of that row without padding fed token
// by token. On the CPU that makes every row's bits those of the row alone. A mask that is an array is honoured too; a
// sentinel is not looked at. pads: B values in [0, S - L].
mx::array left_padded_attention(const AttentionInput& in, const std::vector<int>& pads);

// The real mask for left-padded rows, for caches that left_padded_attention isn't asked to serve.
mx::array left_padded_mask(const std::vector<int>& pads, int length, int key_length);

// A host's special attention: the output [B, H, L, D], or none where it can't serve.
using PaddedAttention = std::function<std::optional<mx::array>(const AttentionInput&, const AttentionCache*)>;
// Never serves: what a host without a special attention has.
std::optional<mx::array> default_target_verify_left_padded_attention(const AttentionInput&, const AttentionCache*);
// left_padded_attention by the cache's padding; serves whenever there is a cache with padding or a block to verify.
std::optional<mx::array> exact_left_padded_attention(const AttentionInput& in, const AttentionCache* cache);

struct VerifyMode {
  bool target_verify;
  int length;
  bool left_padded_decode;
};
// The helper's answer for a block under verification (target_verify and more than one token) or a left-padded decode;
// none otherwise, without asking.
std::optional<mx::array> maybe_target_verify_attention(const AttentionInput& in, const AttentionCache* cache,
                                                       VerifyMode mode, const PaddedAttention& helper);

}  // namespace tutti::compat
