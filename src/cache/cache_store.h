// The memory of all caches: one KV pool per full-attention layer, one state pool per linear layer. Owned here and
// nowhere else; ops get views. Thread rule: the engine thread (and the MLX stream thread while a step is evaluated).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cache/copy.h"
#include "cache/specs.h"
#include "ops/cache_views.h"
#include "ops/numerics.h"

namespace tutti::cache {

class CacheStore {
 public:
  virtual ~CacheStore() = default;
  virtual ops::KvView kv(int layer) = 0;        // layer must be paged
  virtual ops::StateView state(int layer) = 0;  // layer must be linear
  // Before a step: carries out the copies of its plan, in order.
  void copy(std::span<const Copy> copies);
  // The arrays that a step has moved and that must be evaluated with its logits (graph bodies; empty for the CPU
  // store).
  virtual std::vector<ops::mx::array> pending() = 0;
  // After a failed step: rebuild what the step may have lost. Returns true when every sequence's caches are gone and
  // must be recomputed (graph bodies), false when only the rows of that step are (CPU: written in place).
  virtual bool recover() = 0;
  virtual int64_t bytes() const = 0;

  // A block of every paged layer, or a slot of every linear layer, as bytes: the layers in order; of each K then V, or
  // state then convolution window, as they lie in memory. What save() gave, load() puts back, to the last bit.
  // bytes_of(what) bytes; between steps only.
  virtual size_t bytes_of(Copy::What what) const = 0;
  virtual void save(Copy::What what, int index, std::span<std::byte> to) = 0;
  virtual void load(Copy::What what, int index, std::span<const std::byte> from) = 0;

 private:
  virtual void copy_one(const Copy& copy) = 0;
};

// Allocates `blocks` blocks and `slots` slots for every layer. Memory is touched as it is used.
std::unique_ptr<CacheStore> make_store(const CacheSpecs& specs, int blocks, int slots, const ops::Numerics& numerics);

}  // namespace tutti::cache
