#include "compat/checks.h"

#include <mlx/ops.h>

#include <stdexcept>

namespace tutti::compat {

void reject(const char* function, const std::string& what) {
  throw std::invalid_argument(std::string("[").append(function) + "] " + what);
}

std::string text_of(const mx::Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

mx::array int_array(const std::vector<int>& values) {
  return mx::array(values.begin(), mx::Shape{static_cast<int>(values.size())}, mx::int32);
}

mx::array cut(const mx::array& x, int axis, int begin, int end) {
  const int at = axis < 0 ? axis + static_cast<int>(x.ndim()) : axis;
  if (begin == 0 && end == x.shape(at)) return x;
  mx::Shape start(x.ndim(), 0), stop = x.shape();
  start[at] = begin;
  stop[at] = end;
  return mx::slice(x, start, stop);
}

}  // namespace tutti::compat
