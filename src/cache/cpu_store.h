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
  size_t bytes_of(Copy::What what) const override;
  void save(Copy::What what, int index, std::span<std::byte> to) override;
  void load(Copy::What what, int index, std::span<const std::byte> from) override;

 private:
  void copy_one(const Copy& copy) override;

  struct Layer {
    AlignedBuffer first, second;             // k and v, or state and convolution window
    size_t first_part = 0, second_part = 0;  // bytes of one block or slot in them
    Copy::What what = Copy::What::block;
  };
  // Calls use(memory, bytes) for each piece of the block or slot, in the order of save().
  template <typename Use>
  void each_part(Copy::What what, int index, const Use& use);
  CacheSpecs specs_;
  kernels::KvType type_;
  std::vector<Layer> layers_;
};

}  // namespace tutti::cache
