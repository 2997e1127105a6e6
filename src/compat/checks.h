// Errors of this room: std::invalid_argument("[function] what, with the shapes"), thrown when the graph is built.
#pragma once

#include <mlx/array.h>

#include <string>

namespace tutti::compat {

namespace mx = mlx::core;

[[noreturn]] void reject(const char* function, const std::string& what);
inline void require(bool ok, const char* function, const std::string& what) {
  if (!ok) reject(function, what);
}
// "[1, 2, 3]"
std::string text_of(const mx::Shape& shape);
// The numbers as an int32 array [n].
mx::array int_array(const std::vector<int>& values);
// x cut to [begin, end) along one axis (negative: from the last); both bounds lie inside it.
mx::array cut(const mx::array& x, int axis, int begin, int end);

}  // namespace tutti::compat
