#include "cache/graph_store.h"

#include <mlx/ops.h>

#include "base/error.h"

namespace tutti::cache {

namespace mx = ops::mx;

namespace {

// Entry `from` of the first axis goes to entry `to`.
void copy_entry(mx::array& pool, int from, int to) {
  mx::Shape start(pool.ndim(), 0), stop = pool.shape(), to_start = start, to_stop = stop;
  start[0] = from, stop[0] = from + 1;
  to_start[0] = to, to_stop[0] = to + 1;
  const mx::array entry = mx::slice(pool, start, stop);
  pool = mx::slice_update(std::move(pool), entry, to_start, to_stop);
}

}  // namespace

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

void GraphStore::copy_block(int from, int to) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].paged()) continue;
    copy_entry(layers_[i].first, from, to);
    copy_entry(layers_[i].second, from, to);
  }
}

void GraphStore::copy_slot(int from, int to) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].paged()) continue;
    copy_entry(layers_[i].first, from, to);
    copy_entry(layers_[i].second, from, to);
  }
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
