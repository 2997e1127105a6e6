#include "ops/weight.h"

#include <stdexcept>

namespace tutti::ops {

Vector make_vector(std::vector<float> values, mx::Shape shape) {
  mx::array array(values.begin(), std::move(shape), mx::float32);
  return {std::move(values), std::move(array)};
}

int out_features(const Weight& w) {
  if (const auto* packed = std::get_if<PackedWeight>(&w)) return packed->matrix().N;
  return std::get<GraphWeight>(w).w.shape(-2);
}

int in_features(const Weight& w) {
  if (const auto* packed = std::get_if<PackedWeight>(&w)) return packed->matrix().K;
  const auto& graph = std::get<GraphWeight>(w);
  const int columns = graph.w.shape(-1);
  return graph.format.format == quant::Format::affine ? columns * 32 / graph.format.affine.bits : columns;
}

int expert_count(const Weight& w) {
  if (const auto* packed = std::get_if<PackedWeight>(&w)) return static_cast<int>(packed->experts.size());
  const auto& graph = std::get<GraphWeight>(w);
  return graph.w.ndim() == 3 ? graph.w.shape(0) : 1;
}

bool is_packed(const Weight& w) {
  return std::holds_alternative<PackedWeight>(w);
}

}  // namespace tutti::ops
