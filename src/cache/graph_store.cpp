#include "cache/graph_store.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <cstring>

#include "base/error.h"

namespace tutti::cache {

namespace mx = ops::mx;

namespace {

mx::array entry_of(const mx::array& pool, int index) {
  mx::Shape start(pool.ndim(), 0), stop = pool.shape();
  start[0] = index, stop[0] = index + 1;
  return mx::slice(pool, start, stop);
}

void set_entry(mx::array& pool, int index, const mx::array& entry) {
  mx::Shape start(pool.ndim(), 0), stop = pool.shape();
  start[0] = index, stop[0] = index + 1;
  pool = mx::slice_update(std::move(pool), entry, start, stop);
}

size_t entry_bytes(const mx::array& pool) {
  return pool.nbytes() / static_cast<size_t>(pool.shape(0));
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
      layers_.push_back({mx::zeros(shape, dtype), mx::zeros(shape, dtype), Copy::What::block});
    } else {
      const auto& s = spec.state;
      layers_.push_back({mx::zeros({slots_, s.value_heads, s.key_dim, s.value_dim}, mx::float32),
                         mx::zeros({slots_, s.conv_taps - 1, s.conv_channels}, mx::float32), Copy::What::slot});
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

std::vector<mx::array*> GraphStore::pools(Copy::What what) {
  std::vector<mx::array*> found;
  for (Layer& layer : layers_) {
    if (layer.what != what) continue;
    found.push_back(&layer.first);
    found.push_back(&layer.second);
  }
  return found;
}

void GraphStore::copy_one(const Copy& copy) {
  for (mx::array* pool : pools(copy.what)) set_entry(*pool, copy.to, entry_of(*pool, copy.from));
}

size_t GraphStore::bytes_of(Copy::What what) const {
  size_t bytes = 0;
  for (const Layer& layer : layers_)
    if (layer.what == what) bytes += entry_bytes(layer.first) + entry_bytes(layer.second);
  return bytes;
}

void GraphStore::save(Copy::What what, int index, std::span<std::byte> to) {
  TUTTI_CHECK(to.size() == bytes_of(what));
  std::byte* next = to.data();
  for (const mx::array* pool : pools(what)) {
    mx::array entry = mx::contiguous(entry_of(*pool, index));
    entry.eval();
    std::memcpy(next, entry.data<std::byte>(), entry_bytes(*pool));
    next += entry_bytes(*pool);
  }
}

void GraphStore::load(Copy::What what, int index, std::span<const std::byte> from) {
  TUTTI_CHECK(from.size() == bytes_of(what));
  const std::byte* next = from.data();
  for (mx::array* pool : pools(what)) {
    mx::Shape shape = pool->shape();
    shape[0] = 1;
    const size_t bytes = entry_bytes(*pool);
    const mx::array raw(reinterpret_cast<const uint8_t*>(next), {static_cast<int>(bytes)}, mx::uint8);
    set_entry(*pool, index, mx::reshape(mx::view(raw, pool->dtype()), shape));
    next += bytes;
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
