// The cache of a linear layer: a few arrays of state per row (convolution window, recurrent state), and which of the
// next tokens are padding.
#pragma once

#include <mlx/array.h>

#include <optional>
#include <span>
#include <vector>

#include "compat/checks.h"

namespace tutti::compat {

// left_padding and lengths are counters that advance() moves with the tokens. Padding of a row below zero means that
// all its tokens are valid from here on; a length of zero or less means that all are padding. Not trimmable.
class ArraysCache {
 public:
  explicit ArraysCache(int slots = 2, std::optional<std::vector<int>> left_padding = {});
  // Rows of caches of one row each; missing slots become zeros.
  static ArraysCache merge(std::span<const ArraysCache* const> members);

  const std::optional<mx::array>& operator[](int slot) const { return slots_.at(static_cast<size_t>(slot)); }
  void set(int slot, mx::array state) { slots_.at(static_cast<size_t>(slot)) = std::move(state); }

  // bool [B, n]: token t of row b is real. Left padding has priority; none without counters.
  std::optional<mx::array> make_mask(int n) const;
  void advance(int n);
  void prepare(std::vector<int> lengths) { lengths_ = std::move(lengths); }
  void finalize();
  void filter(const std::vector<int>& rows);  // at least one
  void extend(const ArraysCache& other);      // after finalize(): a missing length would mask its row
  ArraysCache extract(int row) const;

  const std::optional<std::vector<int>>& left_padding() const { return left_padding_; }
  const std::optional<std::vector<int>>& lengths() const { return lengths_; }
  bool empty() const { return !slots_[0]; }
  int rows() const;
  static bool trimmable() { return false; }

 private:
  std::vector<std::optional<mx::array>> slots_;  // [B, …] each
  std::optional<std::vector<int>> left_padding_, lengths_;
};

}  // namespace tutti::compat
