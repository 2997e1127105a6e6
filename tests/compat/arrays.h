// Small arrays, and their bits, for the tests of this room.
#pragma once

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "compat/checks.h"

namespace tutti::test {

namespace mx = mlx::core;
using Ints = std::vector<int>;

inline mx::array ints(const Ints& values, mx::Shape shape) {
  return mx::array(values.begin(), std::move(shape), mx::int32);
}
inline Ints ints_of(const mx::array& a) {
  auto flat = mx::contiguous(mx::astype(a, mx::int32));
  flat.eval();
  return {flat.data<int32_t>(), flat.data<int32_t>() + flat.size()};
}
// Rows of '0' and '1' along the last axis, joined by spaces.
inline std::string bits_of(const mx::array& mask) {
  EXPECT_EQ(mask.dtype(), mx::bool_);
  std::string text;
  const auto values = ints_of(mask);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0 && i % static_cast<size_t>(mask.shape(-1)) == 0) text += ' ';
    text += values[i] != 0 ? '1' : '0';
  }
  return text;
}
inline mx::array random(mx::Shape shape, uint64_t seed) {
  auto made = mx::random::normal(shape, mx::float32, mx::random::key(seed));
  made.eval();
  return made;
}
inline bool same_bits(const mx::array& a, const mx::array& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  auto x = mx::contiguous(a), y = mx::contiguous(b);
  mx::eval(x, y);
  return std::memcmp(x.data<char>(), y.data<char>(), x.nbytes()) == 0;
}
inline float largest_difference(const mx::array& a, const mx::array& b) {
  return mx::max(mx::abs(a - b)).item<float>();
}

// Row b of [B, …], as a batch of one.
inline mx::array row(const mx::array& x, int b) {
  return compat::cut(x, 0, b, b + 1);
}

// The message of the std::invalid_argument that f throws; empty if it throws none.
inline std::string complaint(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return {};
}

}  // namespace tutti::test
