#include "cache/cache_store.h"

#include "cache/cpu_store.h"
#include "cache/graph_store.h"

namespace tutti::cache {

void CacheStore::copy(std::span<const Copy> copies) {
  for (const Copy& c : copies) copy_one(c);
}

std::unique_ptr<CacheStore> make_store(const CacheSpecs& specs, int blocks, int slots, const ops::Numerics& numerics) {
  if (numerics.body == ops::Body::graph) return std::make_unique<GraphStore>(specs, blocks, slots, numerics.kv);
  return std::make_unique<CpuStore>(specs, blocks, slots, numerics.kv);
}

}  // namespace tutti::cache
