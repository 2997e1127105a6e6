// The attention call of a Qwen3.5 layer over a cache whose rows may have different lengths.
#pragma once

#include <mlx/array.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "compat/padded_attention.h"
#include "compat/positions.h"

namespace tutti::compat {

using Linear = std::function<mx::array(const mx::array&)>;
// All linears of one x [B, L, K], in order.
using VerifyLinears = std::function<std::vector<mx::array>(std::span<const Linear>, const mx::array& x, bool verify)>;
// Each linear once over the whole block; the flag is ignored.
std::vector<mx::array> default_target_verify_linears(std::span<const Linear> linears, const mx::array& x, bool verify);
// A block under verification goes through token by token, so that its bits are those of tokens fed one by one.
std::vector<mx::array> exact_target_verify_linears(std::span<const Linear> linears, const mx::array& x, bool verify);

// One layer: weights as functions, so that a host of any kind can lend its own.
struct AttentionLayer {
  int heads, kv_heads;
  float scale;                    // head dim ^ -0.5
  Linear q_proj, k_proj, v_proj;  // q_proj gives query and gate of each head, [B, L, H · 2 D]
  Linear o_proj;
  Linear q_norm, k_norm;  // over the last axis
  Rotary rotary;
  RotateFunction rotate;
  VerifyLinears verify_linears = exact_target_verify_linears;
  PaddedAttention padded_attention = exact_left_padded_attention;
  PositionRule positions = PositionRule::per_row;
};
struct AttentionCall {
  Mask mask = {};
  AttentionCache* cache = nullptr;  // updated
  PositionInputs positions = {};
  bool target_verify = false;
};
// x [B, L, hidden] → [B, L, hidden]. Stale positions are recomputed from the cache's offset. The sentinel
// "left_padded_decode" never falls to an attention without a mask: where the special attention doesn't serve, the real
// mask is made from the cache's padding, and a cache without any is an error.
mx::array batched_attention(const AttentionLayer& layer, const mx::array& x, AttentionCall call);

}  // namespace tutti::compat
