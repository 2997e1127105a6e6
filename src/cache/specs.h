// What a model asks of the caches, layer by layer, and what that costs. Integers only.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::cache {

inline constexpr int kBlockTokens = 64;

struct PagedKvSpec {
  int kv_heads = 0, head_dim = 0;
  int bytes_per_value = 2;
  int64_t block_bytes() const { return int64_t{2} * kBlockTokens * kv_heads * head_dim * bytes_per_value; }
};

struct DeltaStateSpec {
  int value_heads = 0, key_dim = 0, value_dim = 0;
  int conv_channels = 0, conv_taps = 4;
  int64_t slot_bytes() const {
    return int64_t{4} * (int64_t{value_heads} * key_dim * value_dim + int64_t{conv_taps - 1} * conv_channels);
  }
};

// One entry per decoder layer, in order: exactly one of the two is set (kv.kv_heads > 0 or state.value_heads > 0).
struct LayerSpec {
  PagedKvSpec kv;
  DeltaStateSpec state;
  bool paged() const { return kv.kv_heads > 0; }
};
using CacheSpecs = std::vector<LayerSpec>;

int64_t bytes_per_block(const CacheSpecs& specs);  // one block in every paged layer
int64_t bytes_per_slot(const CacheSpecs& specs);   // one sequence's state in every linear layer

}  // namespace tutti::cache
