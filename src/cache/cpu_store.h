// The store of the CPU bodies: plain aligned memory, written in place by the ops. Private to the room; make_store()
// picks it.
#pragma once

#include "base/aligned_buffer.h"
#include "cache/cache_store.h"

namespace tutti::cache {

class CpuStore : public CacheStore {
 public:
  CpuStore(const CacheSpecs& specs, int blocks, int slots, kernels::KvType type);
  ops::KvView kv(int layer) override;
  ops::StateView state(int layer) override;
  std::vector<ops::mx::array> pending() override { return {}; }
  bool recover() override { return false; }
  int64_t bytes() const override;

 private:
  void copy_block(int from, int to) override;
  void copy_slot(int from, int to) override;

  struct Layer {
    AlignedBuffer first, second;  // k and v, or state and convolution window
  };
  CacheSpecs specs_;
  kernels::KvType type_;
  std::vector<Layer> layers_;
};

}  // namespace tutti::cache
