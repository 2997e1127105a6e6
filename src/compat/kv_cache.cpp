#include "compat/kv_cache.h"

#include <mlx/ops.h>

#include <algorithm>
#include <utility>

namespace tutti::compat {
namespace {

int trimmed(int& length, int n) {
  require(n >= 0, "trim", "negative length " + std::to_string(n));
  const int m = std::min(length, n);
  length -= m;
  return m;
}

}  // namespace

void append_time(std::optional<mx::array>& buffer, const mx::array& x, int fill) {
  const int n = x.shape(2);
  if (!buffer || fill + n > buffer->shape(2)) {
    mx::Shape more = x.shape();
    more[2] = (kGrowth + n - 1) / kGrowth * kGrowth;
    const auto fresh = mx::zeros(more, x.dtype());
    buffer = buffer ? mx::concatenate({fill % kGrowth != 0 ? cut(*buffer, 2, 0, fill) : *buffer, fresh}, 2) : fresh;
  }
  mx::Shape start(4, 0), stop = buffer->shape();
  start[2] = fill;
  stop[2] = fill + n;
  buffer = mx::slice_update(*buffer, x, start, stop);
}

void require_keys_values(const char* function, const mx::array& keys, const mx::array& values) {
  bool good = keys.ndim() == 4 && values.ndim() == 4;
  for (int axis = 0; good && axis < 3; ++axis) good = keys.shape(axis) == values.shape(axis);
  require(good, function,
          "keys " + text_of(keys.shape()) + " and values " + text_of(values.shape()) + ", expected [B, G, n, D] twice");
}

Mask plain_mask(int n, int offset, bool return_array, std::optional<int> window) {
  if (window || (return_array && n != 1)) return causal_mask({.queries = n, .offset = offset, .window = window});
  return n == 1 ? Mask{} : Mask{std::string("causal")};
}

void QuantizedKVCache::append(std::optional<Parts>& parts, const mx::array& x, int fill, Quantization q) {
  if (!parts) parts.emplace();
  const auto quantized = mx::quantize(x, q.group_size, q.bits);
  append_time(parts->packed, quantized[0], fill);
  append_time(parts->scales, quantized[1], fill);
  append_time(parts->biases, quantized[2], fill);
}

QuantizedArray QuantizedKVCache::fetch(const Parts& parts) const {
  return {cut(*parts.packed, 2, 0, offset_), cut(*parts.scales, 2, 0, offset_), cut(*parts.biases, 2, 0, offset_)};
}

KeysValues QuantizedKVCache::update_and_fetch(const mx::array& keys, const mx::array& values) {
  require_keys_values("QuantizedKVCache", keys, values);
  append(keys_, keys, offset_, quantization_);
  append(values_, values, offset_, quantization_);
  offset_ += keys.shape(2);
  return {fetch(*keys_), fetch(*values_)};
}

Mask QuantizedKVCache::make_mask(int n, bool return_array, std::optional<int> window) const {
  return plain_mask(n, offset_, return_array, window);
}

int QuantizedKVCache::trim(int n) {
  return trimmed(offset_, n);
}

int64_t QuantizedKVCache::nbytes() const {
  int64_t bytes = 0;
  for (const auto* parts : {&keys_, &values_}) {
    if (*parts) bytes += (*parts)->packed->nbytes() + (*parts)->scales->nbytes() + (*parts)->biases->nbytes();
  }
  return bytes;
}

KVCache::KVCache(mx::array keys, mx::array values) : keys_(std::move(keys)), values_(std::move(values)) {
  require_keys_values("KVCache", *keys_, *values_);
  offset_ = keys_->shape(2);
}

KeysValues KVCache::update_and_fetch(const mx::array& keys, const mx::array& values) {
  require_keys_values("KVCache", keys, values);
  append_time(keys_, keys, offset_);
  append_time(values_, values, offset_);
  offset_ += keys.shape(2);
  return {this->keys(), this->values()};
}

mx::array KVCache::keys() const {
  return cut(*keys_, 2, 0, offset_);
}
mx::array KVCache::values() const {
  return cut(*values_, 2, 0, offset_);
}

Mask KVCache::make_mask(int n, bool return_array, std::optional<int> window) const {
  return plain_mask(n, offset_, return_array, window);
}

int KVCache::trim(int n) {
  return trimmed(offset_, n);
}

QuantizedKVCache KVCache::to_quantized(Quantization quantization) const {
  QuantizedKVCache made(quantization);
  if (!empty() && offset_ > 0) made.update_and_fetch(keys(), values());
  return made;
}

}  // namespace tutti::compat
