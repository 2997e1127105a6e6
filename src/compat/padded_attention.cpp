#include "compat/padded_attention.h"

#include <mlx/fast.h>
#include <mlx/ops.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace tutti::compat {
namespace {

constexpr const char* kSdpa = "dot_product_attention";
constexpr const char* kPadded = "left_padded_attention";

const mx::array& stored(const CachedArray& cached) {
  const auto* plain = std::get_if<mx::array>(&cached);
  return plain != nullptr ? *plain : std::get<QuantizedArray>(cached).packed;
}

void require_input(const char* function, const AttentionInput& in) {
  const auto &q = in.queries, &k = stored(in.cached.keys), &v = stored(in.cached.values);
  const bool good = q.ndim() == 4 && k.ndim() == 4 && v.ndim() == 4 && k.shape(0) == q.shape(0) &&
                    v.shape(0) == q.shape(0) && k.shape(1) == v.shape(1) && k.shape(2) == v.shape(2) &&
                    k.shape(1) > 0 && q.shape(1) % k.shape(1) == 0;
  require(good, function,
          "queries " + text_of(q.shape()) + ", keys " + text_of(k.shape()) + " and values " + text_of(v.shape()) +
              " don't fit");
  require(in.cached.keys.index() == in.cached.values.index(), function, "only one of keys and values is quantised");
  require(std::holds_alternative<mx::array>(in.cached.keys) || in.quantization.has_value(), function,
          "quantised keys of a cache that states no bits");
}

void require_mask(const char* function, const AttentionInput& in) {
  const auto* mask = std::get_if<mx::array>(&in.mask);
  if (mask == nullptr) return;
  const int S = time_length(in.cached.keys), L = in.queries.shape(2);
  const bool keys_fit = mask->ndim() >= 1 && (mask->shape(-1) == S || mask->shape(-1) == 1);
  const bool queries_fit = mask->ndim() < 2 || mask->shape(-2) == L || mask->shape(-2) == 1;
  require(
      keys_fit && queries_fit, function,
      "mask " + text_of(mask->shape()) + " for " + std::to_string(L) + " queries and " + std::to_string(S) + " keys");
}

float lowest(mx::Dtype type) {
  if (type == mx::float16) return -65504.0f;
  return type == mx::bfloat16 ? -3.3895313892515355e38f : std::numeric_limits<float>::lowest();
}

mx::array quantized_product(const mx::array& x, const QuantizedArray& w, bool transpose, Quantization q) {
  return mx::quantized_matmul(x, w.packed, w.scales, w.biases, transpose, q.group_size, q.bits);
}

QuantizedArray with_group_axis(const QuantizedArray& w) {
  return {mx::expand_dims(w.packed, 2), mx::expand_dims(w.scales, 2), mx::expand_dims(w.biases, 2)};
}

mx::array masked(mx::array scores, const Mask& mask, bool grouped) {
  if (std::holds_alternative<std::monostate>(mask)) return scores;
  const int L = scores.shape(-2), S = scores.shape(-1);
  const auto* given = std::get_if<mx::array>(&mask);
  mx::array m = given != nullptr ? *given : causal_mask({.queries = L, .offset = S - L});
  if (grouped && m.ndim() > 3) m = mx::expand_dims(m, -3);
  if (m.dtype() != mx::bool_) return scores + m;
  return mx::where(m, scores, mx::array(lowest(scores.dtype()), scores.dtype()));
}

mx::array quantized_attention(const AttentionInput& in) {
  const auto& q = in.queries;
  auto keys = std::get<QuantizedArray>(in.cached.keys), values = std::get<QuantizedArray>(in.cached.values);
  const int B = q.shape(0), H = q.shape(1), L = q.shape(2), D = q.shape(3), G = keys.packed.shape(1);
  auto queries = q * mx::array(in.scale, q.dtype());
  const bool grouped = H != G;
  if (grouped) {
    queries = mx::reshape(queries, {B, G, H / G, L, D});
    keys = with_group_axis(keys);
    values = with_group_axis(values);
  }
  auto scores = masked(quantized_product(queries, keys, true, *in.quantization), in.mask, grouped);
  scores = mx::softmax(scores, -1, /*precise=*/true);
  const auto out = quantized_product(scores, values, false, *in.quantization);
  return grouped ? mx::reshape(out, {B, H, L, out.shape(-1)}) : out;
}

// The rows of one group, in order; a run of neighbours is a view.
struct Rows {
  std::vector<int> at;
  mx::array of(const mx::array& x) const {
    const int first = at.front(), n = static_cast<int>(at.size());
    if (at.back() - first + 1 == n) return cut(x, 0, first, first + n);
    return mx::take(x, int_array(at), 0);
  }
  CachedArray of(const CachedArray& cached) const {
    if (const auto* plain = std::get_if<mx::array>(&cached)) return of(*plain);
    const auto& q = std::get<QuantizedArray>(cached);
    return QuantizedArray{of(q.packed), of(q.scales), of(q.biases)};
  }
};

// The part of an array mask that concerns a group's query i and its keys [begin, end).
Mask mask_part(const Mask& mask, const Rows& rows, int i, int begin, int end) {
  const auto* given = std::get_if<mx::array>(&mask);
  if (given == nullptr) return {};
  mx::array m = *given;
  if (m.ndim() == 4 && m.shape(0) != 1) m = rows.of(m);
  if (m.ndim() >= 2 && m.shape(-2) != 1) m = cut(m, -2, i, i + 1);
  if (m.shape(-1) != 1) m = cut(m, -1, begin, end);
  return m;
}

mx::array group_attention(const AttentionInput& in, const Rows& rows, int pad) {
  const int L = in.queries.shape(2), S = time_length(in.cached.keys);
  const auto queries = rows.of(in.queries);
  const auto keys = rows.of(in.cached.keys), values = rows.of(in.cached.values);
  std::vector<mx::array> outputs;
  for (int i = 0; i < L; ++i) {
    const int end = S - L + i + 1;
    const KeysValues seen{cut_time(keys, pad, end), cut_time(values, pad, end)};
    const auto query = cut(queries, 2, i, i + 1);
    const auto mask = mask_part(in.mask, rows, i, pad, end);
    outputs.push_back(dot_product_attention({query, seen, mask, in.scale, in.quantization}));
  }
  return L == 1 ? outputs[0] : mx::concatenate(outputs, 2);
}

}  // namespace

mx::array dot_product_attention(const AttentionInput& in) {
  require_input(kSdpa, in);
  require_mask(kSdpa, in);
  if (std::holds_alternative<QuantizedArray>(in.cached.keys)) return quantized_attention(in);
  const auto &keys = std::get<mx::array>(in.cached.keys), &values = std::get<mx::array>(in.cached.values);
  if (const auto* array = std::get_if<mx::array>(&in.mask)) {
    return mx::fast::scaled_dot_product_attention(in.queries, keys, values, in.scale, "array", *array);
  }
  const auto* sentinel = std::get_if<std::string>(&in.mask);
  require(sentinel == nullptr || *sentinel == "causal", kSdpa,
          sentinel != nullptr ? "unknown mask \"" + *sentinel + "\"" : std::string());
  return mx::fast::scaled_dot_product_attention(in.queries, keys, values, in.scale,
                                                sentinel != nullptr ? *sentinel : "");
}

mx::array left_padded_attention(const AttentionInput& in, const std::vector<int>& pads) {
  require_input(kPadded, in);
  require_mask(kPadded, in);
  const int B = in.queries.shape(0), L = in.queries.shape(2), S = time_length(in.cached.keys);
  require(static_cast<int>(pads.size()) == B, kPadded,
          std::to_string(pads.size()) + " paddings for queries " + text_of(in.queries.shape()));
  std::map<int, Rows> groups;
  for (int b = 0; b < B; ++b) {
    const int pad = pads[static_cast<size_t>(b)];
    require(pad >= 0 && pad <= S - L, kPadded,
            "padding " + std::to_string(pad) + " of row " + std::to_string(b) + " with " + std::to_string(L) +
                " queries and " + std::to_string(S) + " keys");
    groups[pad].at.push_back(b);
  }
  if (groups.size() == 1) return group_attention(in, groups.begin()->second, groups.begin()->first);
  std::vector<mx::array> outputs;
  std::vector<int> place(static_cast<size_t>(B));  // row → its place among the outputs
  int next = 0;
  for (const auto& [pad, rows] : groups) {
    outputs.push_back(group_attention(in, rows, pad));
    for (const int row : rows.at) place[static_cast<size_t>(row)] = next++;
  }
  const auto joined = mx::concatenate(outputs, 0);
  return std::is_sorted(place.begin(), place.end()) ? joined : mx::take(joined, int_array(place), 0);
}

mx::array left_padded_mask(const std::vector<int>& pads, int length, int key_length) {
  require(key_length >= length, "left_padded_mask",
          std::to_string(length) + " queries and " + std::to_string(key_length) + " keys");
  return causal_mask({.queries = length, .offset = key_length - length, .left_padding = pads});
}

std::optional<mx::array> default_target_verify_left_padded_attention(const AttentionInput&, const AttentionCache*) {
  return std::nullopt;
}

std::optional<mx::array> exact_left_padded_attention(const AttentionInput& in, const AttentionCache* cache) {
  auto pads = cache != nullptr ? cache->left_padding() : std::vector<int>{};
  if (pads.empty() && in.queries.shape(2) == 1) return std::nullopt;
  if (pads.empty()) pads.resize(static_cast<size_t>(in.queries.shape(0)), 0);
  // A ring may have dropped a row's padding, and more.
  for (int& pad : pads) pad = std::max(pad, 0);
  return left_padded_attention(in, pads);
}

std::optional<mx::array> maybe_target_verify_attention(const AttentionInput& in, const AttentionCache* cache,
                                                       VerifyMode mode, const PaddedAttention& helper) {
  if (!((mode.target_verify && mode.length > 1) || mode.left_padded_decode)) return std::nullopt;
  return helper(in, cache);
}

}  // namespace tutti::compat
