#include "ops/graph_ops.h"

#include <mlx/ops.h>

namespace tutti::ops::graph {

mx::array dense(const GraphWeight& w) {
  if (w.format.format != quant::Format::affine) return mx::astype(w.w, mx::float32);
  const auto f32 = [](const mx::array& a) { return mx::astype(a, mx::float32); };
  return mx::dequantize(w.w, f32(*w.scales), f32(*w.biases), w.format.affine.group, w.format.affine.bits);
}

mx::array linear(const mx::array& x, const Weight& w) {
  return mx::matmul(x, mx::swapaxes(dense(std::get<GraphWeight>(w)), -1, -2));
}

mx::array rms(const mx::array& x, const Vector& gamma, float eps) {
  const auto mean = mx::mean(mx::square(x), -1, true);
  return x * mx::rsqrt(mean + mx::array(eps)) * gamma.array;
}

mx::array silu(const mx::array& x) {
  return x * mx::sigmoid(x);
}

mx::array int_array(const std::vector<int32_t>& values) {
  return mx::array(values.begin(), {static_cast<int>(values.size())}, mx::int32);
}

mx::array rows(const mx::array& x, int begin, int end) {
  mx::Shape start(x.ndim(), 0), stop = x.shape();
  start[0] = begin;
  stop[0] = end;
  return mx::slice(x, start, stop);
}

}  // namespace tutti::ops::graph
