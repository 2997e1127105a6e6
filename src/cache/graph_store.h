// The store of the graph bodies: arrays that ops move through the step. Private to the room; make_store() picks it.
#pragma once

#include "cache/cache_store.h"

namespace tutti::cache {

class GraphStore : public CacheStore {
 public:
  GraphStore(const CacheSpecs& specs, int blocks, int slots, kernels::KvType type);
  ops::KvView kv(int layer) override;
  ops::StateView state(int layer) override;
  std::vector<ops::mx::array> pending() override;
  bool recover() override;
  int64_t bytes() const override;
  size_t bytes_of(Copy::What what) const override;
  void save(Copy::What what, int index, std::span<std::byte> to) override;
  void load(Copy::What what, int index, std::span<const std::byte> from) override;

 private:
  void copy_one(const Copy& copy) override;

  struct Layer {
    ops::mx::array first, second;  // k and v, or state and convolution window
    Copy::What what = Copy::What::block;
  };
  std::vector<ops::mx::array*> pools(Copy::What what);  // in the order of save()
  void reset();

  CacheSpecs specs_;
  int blocks_, slots_;
  kernels::KvType type_;
  std::vector<Layer> layers_;
};

}  // namespace tutti::cache
