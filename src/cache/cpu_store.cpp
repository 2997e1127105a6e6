#include "cache/cpu_store.h"

#include <cstring>

#include "base/error.h"

namespace tutti::cache {

namespace {

// Number `from` of equal parts of `bytes` bytes each goes to number `to`.
void copy_part(AlignedBuffer& buffer, int64_t bytes, int from, int to) {
  std::byte* parts = buffer.as<std::byte>();
  std::memcpy(parts + to * bytes, parts + from * bytes, static_cast<size_t>(bytes));
}

}  // namespace

CpuStore::CpuStore(const CacheSpecs& specs, int blocks, int slots, kernels::KvType type) : specs_(specs), type_(type) {
  for (const auto& spec : specs_) {
    Layer layer;
    if (spec.paged()) {
      const int64_t value = type == kernels::KvType::float32 ? 4 : 2;
      const int64_t bytes = value * blocks * kBlockTokens * spec.kv.kv_heads * spec.kv.head_dim;
      layer = {AlignedBuffer(static_cast<size_t>(bytes)), AlignedBuffer(static_cast<size_t>(bytes))};
    } else {
      const auto& s = spec.state;
      const int64_t state = int64_t{4} * slots * s.value_heads * s.key_dim * s.value_dim;
      const int64_t conv = int64_t{4} * slots * (s.conv_taps - 1) * s.conv_channels;
      layer = {AlignedBuffer(static_cast<size_t>(state)), AlignedBuffer(static_cast<size_t>(conv))};
    }
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

void CpuStore::copy_block(int from, int to) {
  const int64_t value = type_ == kernels::KvType::float32 ? 4 : 2;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].paged()) continue;
    const int64_t bytes = value * kBlockTokens * specs_[i].kv.kv_heads * specs_[i].kv.head_dim;
    copy_part(layers_[i].first, bytes, from, to);
    copy_part(layers_[i].second, bytes, from, to);
  }
}

void CpuStore::copy_slot(int from, int to) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].paged()) continue;
    const auto& s = specs_[i].state;
    copy_part(layers_[i].first, int64_t{4} * s.value_heads * s.key_dim * s.value_dim, from, to);
    copy_part(layers_[i].second, int64_t{4} * (s.conv_taps - 1) * s.conv_channels, from, to);
  }
}

int64_t CpuStore::bytes() const {
  size_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer.first.bytes() + layer.second.bytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace tutti::cache
