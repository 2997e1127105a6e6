// Keys and values of rows of different length in one buffer, padded on the left so that all end at the same column.
#pragma once

#include <mlx/array.h>

#include <optional>
#include <span>
#include <vector>

#include "compat/kv_cache.h"

namespace tutti::compat {

// Row b's real tokens stand in columns [left_padding[b], size()), and offset[b] = size() - left_padding[b] counts them
// (negative while only padding was stepped over). Lengths are host integers: reading them never waits for the device.
//
// Rows of different length may also be fed right-padded: prepare() with the padding, one or more updates (the window),
// finalize(). Inside the window each row's padding follows all its real tokens; offsets are over-counted for the short
// rows, and the mask does not hide the padding, which no real token of the row can see.
class BatchKVCache : public AttentionCache {
 public:
  explicit BatchKVCache(std::vector<int> left_padding);
  // Rows of their own caches, of one row each, right-aligned. Empty members are allowed.
  static BatchKVCache merge(std::span<const KVCache* const> members);

  CacheOffset offset() const override { return offset_; }
  std::optional<int> fill() const override { return fill_; }
  std::vector<int> left_padding() const override { return left_padding_; }
  KeysValues update_and_fetch(const mx::array& keys, const mx::array& values) override;

  struct Window {
    std::vector<int> left_padding = {};   // only of an empty cache
    std::vector<int> lengths = {};        // real tokens of each row in the window: bounds what may be fed
    std::vector<int> right_padding = {};  // per row
  };
  void prepare(const Window& window);
  // Moves right padding to the front.
  void finalize();

  int trim(int n);                                                   // of all rows alike; returns how many
  mx::array make_mask(int n, std::optional<int> window = {}) const;  // bool [B, 1, n, size() + n]
  void filter(const std::vector<int>& rows);                         // keeps these, in this order; at least one
  void extend(const BatchKVCache& other);                            // other's rows after the own
  KVCache extract(int row) const;                                    // a copy of one row
  void set_state(mx::array keys, mx::array values, std::vector<int> offset, std::vector<int> left_padding);

  int rows() const { return static_cast<int>(offset_.size()); }
  int size() const { return fill_; }  // columns, not a row's length
  int capacity() const { return keys_ ? keys_->shape(2) : 0; }
  bool empty() const { return !keys_; }
  int64_t nbytes() const { return empty() ? 0 : static_cast<int64_t>(keys_->nbytes() + values_->nbytes()); }
  const std::vector<int>& offsets() const { return offset_; }
  mx::array keys() const { return cut(*keys_, 2, 0, fill_); }  // [B, G, size(), D]; not of an empty cache
  mx::array values() const { return cut(*values_, 2, 0, fill_); }

 private:
  // This cache's buffer with its columns moved right by `left`, of `capacity` columns and at least as many heads.
  mx::array justified(const std::optional<mx::array>& own, const mx::array& like, int left, int capacity) const;
  void require_rows(const char* function, const std::vector<int>& per_row) const;

  std::optional<mx::array> keys_, values_;  // [B, G, capacity, D]
  std::vector<int> left_padding_, offset_;
  int fill_ = 0;
  std::vector<int> right_padding_;  // pending, or empty
  std::optional<int> window_left_;  // columns that may still be fed before finalize()
};

}  // namespace tutti::compat
