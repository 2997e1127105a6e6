#include "cache/graph_store.h"

#include <mlx/ops.h>

#include "base/error.h"

namespace tutti::cache {

namespace mx = ops::mx;

GraphStore::GraphStore(const CacheSpecs& specs, int blocks, int slots, kernels::KvType type)
    : specs_(specs), blocks_(blocks), slots_(slots), type_(type) {
  reset();
}

void GraphStore::reset() {
  layers_.clear();
  const auto dtype = type_ == kernels::KvType::float32 ? mx::float32 : mx::bfloat16;
  for (const auto& spec : specs_) {
    if (spec.paged()) {
      const mx::Shape shape{blocks_, kBlockTokens, spec.kv.kv_heads, spec.kv.head_dim};
      layers_.push_back({mx::zeros(shape, dtype), mx::zeros(shape, dtype)});
    } else {
      const auto& s = spec.state;
      layers_.push_back({mx::zeros({slots_, s.value_heads, s.key_dim, s.value_dim}, mx::float32),
                         mx::zeros({slots_, s.conv_taps - 1, s.conv_channels}, mx::float32)});
    }
  }
}

ops::KvView GraphStore::kv(int layer) {
  TUTTI_CHECK(specs_.at(static_cast<size_t>(layer)).paged());
  auto& arrays = layers_[static_cast<size_t>(layer)];
  return ops::GraphKv{&arrays.first, &arrays.second};
}

ops::StateView GraphStore::state(int layer) {
  TUTTI_CHECK(!specs_.at(static_cast<size_t>(layer)).paged());
  auto& arrays = layers_[static_cast<size_t>(layer)];
  return ops::GraphState{&arrays.first, &arrays.second};
}

std::vector<mx::array> GraphStore::pending() {
  std::vector<mx::array> arrays;
  for (const auto& layer : layers_) {
    arrays.push_back(layer.first);
    arrays.push_back(layer.second);
  }
  return arrays;
}

bool GraphStore::recover() {
  reset();
  return true;
}

int64_t GraphStore::bytes() const {
  size_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer.first.nbytes() + layer.second.nbytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace tutti::cache
