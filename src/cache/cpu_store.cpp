#include "cache/cpu_store.h"

#include <cstring>

#include "base/error.h"

namespace tutti::cache {

CpuStore::CpuStore(const CacheSpecs& specs, int blocks, int slots, kernels::KvType type) : specs_(specs), type_(type) {
  const int64_t value = type == kernels::KvType::float32 ? 4 : 2;
  for (const auto& spec : specs_) {
    Layer layer;
    if (spec.paged()) {
      layer.what = Copy::What::block;
      layer.first_part = layer.second_part =
          static_cast<size_t>(value * kBlockTokens * spec.kv.kv_heads * spec.kv.head_dim);
    } else {
      const auto& s = spec.state;
      layer.what = Copy::What::slot;
      layer.first_part = static_cast<size_t>(int64_t{4} * s.value_heads * s.key_dim * s.value_dim);
      layer.second_part = static_cast<size_t>(int64_t{4} * (s.conv_taps - 1) * s.conv_channels);
    }
    const auto parts = static_cast<size_t>(spec.paged() ? blocks : slots);
    layer.first = AlignedBuffer(parts * layer.first_part);
    layer.second = AlignedBuffer(parts * layer.second_part);
    layers_.push_back(std::move(layer));
  }
}

ops::KvView CpuStore::kv(int layer) {
  const auto& spec = specs_.at(static_cast<size_t>(layer));
  TUTTI_CHECK(spec.paged());
  auto& memory = layers_[static_cast<size_t>(layer)];
  return kernels::KvLayer{type_, memory.first.data(), memory.second.data(), spec.kv.kv_heads, spec.kv.head_dim};
}

ops::StateView CpuStore::state(int layer) {
  TUTTI_CHECK(!specs_.at(static_cast<size_t>(layer)).paged());
  auto& memory = layers_[static_cast<size_t>(layer)];
  return ops::CpuState{memory.first.as<float>(), memory.second.as<float>()};
}

template <typename Use>
void CpuStore::each_part(Copy::What what, int index, const Use& use) {
  for (Layer& layer : layers_) {
    if (layer.what != what) continue;
    use(layer.first.as<std::byte>() + static_cast<size_t>(index) * layer.first_part, layer.first_part);
    use(layer.second.as<std::byte>() + static_cast<size_t>(index) * layer.second_part, layer.second_part);
  }
}

void CpuStore::copy_one(const Copy& copy) {
  const std::ptrdiff_t steps = copy.to - copy.from;
  each_part(copy.what, copy.from, [&](std::byte* part, size_t bytes) {
    std::memcpy(part + steps * static_cast<std::ptrdiff_t>(bytes), part, bytes);
  });
}

size_t CpuStore::bytes_of(Copy::What what) const {
  size_t bytes = 0;
  for (const Layer& layer : layers_)
    if (layer.what == what) bytes += layer.first_part + layer.second_part;
  return bytes;
}

void CpuStore::save(Copy::What what, int index, std::span<std::byte> to) {
  TUTTI_CHECK(to.size() == bytes_of(what));
  std::byte* next = to.data();
  each_part(what, index, [&](const std::byte* part, size_t bytes) {
    std::memcpy(next, part, bytes);
    next += bytes;
  });
}

void CpuStore::load(Copy::What what, int index, std::span<const std::byte> from) {
  TUTTI_CHECK(from.size() == bytes_of(what));
  const std::byte* next = from.data();
  each_part(what, index, [&](std::byte* part, size_t bytes) {
    std::memcpy(part, next, bytes);
    next += bytes;
  });
}

int64_t CpuStore::bytes() const {
  size_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer.first.bytes() + layer.second.bytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace tutti::cache
