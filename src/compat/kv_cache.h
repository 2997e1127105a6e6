// Caches of keys and values whose rows all have the same length: plain, and quantised.
#pragma once

#include <mlx/array.h>

#include <optional>

#include "compat/cache.h"
#include "compat/masks.h"

namespace tutti::compat {

inline constexpr int kGrowth = 256;  // tokens by which the capacity grows, or its next multiple

// Writes x [B, G, n, D] at [fill, fill + n) of a buffer along time, which is made or grown as needed: by a multiple of
// kGrowth, after dropping its unused tail if fill is no such multiple.
void append_time(std::optional<mx::array>& buffer, const mx::array& x, int fill);
// keys and values [B, G, n, D] of equal B, G and n.
void require_keys_values(const char* function, const mx::array& keys, const mx::array& values);
// The mask of a cache without padding: bool [n, offset + n] with a window, else none for one token, "causal" or the
// array if one is asked for, for more.
Mask plain_mask(int n, int offset, bool return_array, std::optional<int> window);

class QuantizedKVCache : public AttentionCache {
 public:
  explicit QuantizedKVCache(Quantization quantization = {.group_size = 64, .bits = 8}) : quantization_(quantization) {}
  CacheOffset offset() const override { return int64_t{offset_}; }
  std::optional<Quantization> quantization() const override { return quantization_; }
  KeysValues update_and_fetch(const mx::array& keys, const mx::array& values) override;
  Mask make_mask(int n, bool return_array = false, std::optional<int> window = {}) const;
  // Forgets the last n tokens, or as many as there are; returns how many.
  int trim(int n);
  int size() const { return offset_; }
  bool empty() const { return !keys_; }
  int64_t nbytes() const;

 private:
  friend class KVCache;
  struct Parts {
    std::optional<mx::array> packed, scales, biases;
  };
  static void append(std::optional<Parts>& parts, const mx::array& x, int fill, Quantization q);
  QuantizedArray fetch(const Parts& parts) const;

  Quantization quantization_;
  std::optional<Parts> keys_, values_;
  int offset_ = 0;
};

class KVCache : public AttentionCache {
 public:
  KVCache() = default;
  KVCache(mx::array keys, mx::array values);  // full to the last token
  CacheOffset offset() const override { return int64_t{offset_}; }
  KeysValues update_and_fetch(const mx::array& keys, const mx::array& values) override;
  Mask make_mask(int n, bool return_array = false, std::optional<int> window = {}) const;
  int trim(int n);
  QuantizedKVCache to_quantized(Quantization quantization = {.group_size = 64, .bits = 4}) const;
  int size() const { return offset_; }
  bool empty() const { return !keys_; }
  int64_t nbytes() const { return empty() ? 0 : static_cast<int64_t>(keys_->nbytes() + values_->nbytes()); }
  // [B, G, size, D]; not of an empty cache.
  mx::array keys() const;
  mx::array values() const;

 private:
  std::optional<mx::array> keys_, values_;  // [B, G, capacity, D]
  int offset_ = 0;
};

}  // namespace tutti::compat
