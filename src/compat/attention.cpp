#include "compat/attention.h"

#include <mlx/ops.h>

#include <array>
#include <utility>

#include "base/log.h"

namespace tutti::compat {
namespace {

constexpr const char* kName = "batched_attention";

struct Projected {
  mx::array queries, keys, values;  // [B, heads, L, D]
  mx::array gate;                   // [B, L, H · D]
};

mx::array heads_first(const mx::array& x) {
  return mx::transpose(x, {0, 2, 1, 3});
}

Projected project(const AttentionLayer& layer, const mx::array& x, bool verify) {
  const int B = x.shape(0), L = x.shape(1);
  const std::array<Linear, 3> linears{layer.q_proj, layer.k_proj, layer.v_proj};
  const auto out = layer.verify_linears(linears, x, verify);
  require(out.size() == 3 && out[0].shape(-1) % (2 * layer.heads) == 0, kName,
          "q_proj gives " + text_of(out[0].shape()) + " for " + std::to_string(layer.heads) + " heads with gates");
  const int D = out[0].shape(-1) / (2 * layer.heads);
  const auto halves = mx::split(mx::reshape(out[0], {B, L, layer.heads, 2 * D}), 2, -1);
  const auto per_head = [&](const mx::array& y) { return mx::reshape(y, {B, L, layer.kv_heads, -1}); };
  return {.queries = heads_first(layer.q_norm(halves[0])),
          .keys = heads_first(layer.k_norm(per_head(out[1]))),
          .values = heads_first(per_head(out[2])),
          .gate = mx::reshape(halves[1], {B, L, layer.heads * D})};
}

// Stale inputs dropped, missing positions made.
PositionInputs resolved(const AttentionLayer& layer, AttentionCall& call, int length) {
  const int got = call.positions.ids ? call.positions.ids->shape(-1) : length;
  auto inputs = normalize_position_inputs(std::move(call.positions), length);
  if (got != length) log::debug("stale position_ids: got {}, expected {}; recomputed", got, length);
  if (inputs.ids) return inputs;
  const auto offset = call.cache != nullptr ? std::optional(call.cache->offset()) : std::nullopt;
  inputs.ids = next_position_ids(offset, length, layer.positions);
  return inputs;
}

mx::array attend(const AttentionLayer& layer, const AttentionInput& in, const AttentionCall& call, bool padded) {
  const int L = in.queries.shape(2);
  const VerifyMode mode{.target_verify = call.target_verify, .length = L, .left_padded_decode = padded};
  if (auto out = maybe_target_verify_attention(in, call.cache, mode, layer.padded_attention)) return *std::move(out);
  if (!padded) return dot_product_attention(in);
  const auto pads = call.cache != nullptr ? call.cache->left_padding() : std::vector<int>{};
  require(!pads.empty(), kName, "mask \"left_padded_decode\" with a cache that has no left padding");
  const Mask real = left_padded_mask(pads, L, time_length(in.cached.keys));
  return dot_product_attention({in.queries, in.cached, real, in.scale, in.quantization});
}

}  // namespace

std::vector<mx::array> default_target_verify_linears(std::span<const Linear> linears, const mx::array& x, bool) {
  std::vector<mx::array> out;
  for (const auto& linear : linears) out.push_back(linear(x));
  return out;
}

std::vector<mx::array> exact_target_verify_linears(std::span<const Linear> linears, const mx::array& x, bool verify) {
  if (!verify || x.ndim() != 3 || x.shape(1) <= 1) return default_target_verify_linears(linears, x, verify);
  std::vector<mx::array> out;
  for (const auto& linear : linears) {
    std::vector<mx::array> tokens;
    for (int t = 0; t < x.shape(1); ++t) tokens.push_back(linear(cut(x, 1, t, t + 1)));
    out.push_back(mx::concatenate(tokens, 1));
  }
  return out;
}

mx::array batched_attention(const AttentionLayer& layer, const mx::array& x, AttentionCall call) {
  require(x.ndim() == 3, kName, "x has shape " + text_of(x.shape()) + ", expected [B, L, hidden]");
  const int B = x.shape(0), L = x.shape(1);
  const auto [queries, keys, values, gate] = project(layer, x, call.target_verify);
  const auto positions = resolved(layer, call, L);
  const auto [q, k] =
      apply_rotary(layer.rotary, {queries, keys, values, *positions.ids, positions.embeddings}, layer.rotate);
  const auto cached = call.cache != nullptr ? call.cache->update_and_fetch(k, values) : KeysValues{k, values};
  // The keys that are there, not a count of what there should be: right for rings too, whose fill is an index.
  Mask mask = slice_attention_mask(call.mask, nullptr, time_length(cached.keys), L);
  const auto* sentinel = std::get_if<std::string>(&mask);
  const bool padded = sentinel != nullptr && *sentinel == kLeftPaddedDecode;
  if (padded) mask = {};
  const auto quantization = call.cache != nullptr ? call.cache->quantization() : std::nullopt;
  const auto out = attend(layer, {q, cached, mask, layer.scale, quantization}, call, padded);
  const auto gated = mx::reshape(heads_first(out), {B, L, -1}) * mx::sigmoid(gate);
  const std::array<Linear, 1> last{layer.o_proj};
  return layer.verify_linears(last, gated, call.target_verify)[0];
}

}  // namespace tutti::compat
