// The memory of all caches: one KV pool per full-attention layer, one state pool per linear layer. Owned here and
// nowhere else; ops get views. Thread rule: the engine thread (and the MLX stream thread while a step is evaluated).
#pragma once

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

 private:
  virtual void copy_block(int from, int to) = 0;  // of every paged layer
  virtual void copy_slot(int from, int to) = 0;   // of every linear layer
};

// Allocates `blocks` blocks and `slots` slots for every layer. Memory is touched as it is used.
std::unique_ptr<CacheStore> make_store(const CacheSpecs& specs, int blocks, int slots, const ops::Numerics& numerics);

}  // namespace tutti::cache
