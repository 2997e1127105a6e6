#include "cache/specs.h"

namespace tutti::cache {

int64_t bytes_per_block(const CacheSpecs& specs) {
  int64_t bytes = 0;
  for (const LayerSpec& layer : specs)
    if (layer.paged()) bytes += layer.kv.block_bytes();
  return bytes;
}

int64_t bytes_per_slot(const CacheSpecs& specs) {
  int64_t bytes = 0;
  for (const LayerSpec& layer : specs)
    if (!layer.paged()) bytes += layer.state.slot_bytes();
  return bytes;
}

}  // namespace tutti::cache
