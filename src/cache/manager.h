// The bookkeeping of all caches as one: which sequence owns which blocks and which state slot. Knows no arrays.
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cache/specs.h"

namespace tutti::cache {

struct ManagerOptions {
  int blocks = 0;  // blocks of kBlockTokens tokens
  int slots = 0;   // recurrent-state slots = sequences that can hold caches at once
};

class CacheManager {
 public:
  explicit CacheManager(ManagerOptions options);
  ~CacheManager();

  // Makes room for `tokens` tokens of the sequence in all (its slot, too, the first time). All or nothing: false
  // changes nothing.
  bool reserve(SequenceId sequence, int tokens);
  // Gives back everything of the sequence (finished, aborted or preempted). Unknown sequences are no error.
  void release(SequenceId sequence);

  bool holds(SequenceId sequence) const;
  std::span<const BlockId> blocks(SequenceId sequence) const;
  SlotId slot(SequenceId sequence) const;

  int total_blocks() const;
  int free_blocks() const;
  int free_slots() const;
  // Blocks that `tokens` tokens of one sequence take.
  static int blocks_for(int tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

  // Throws InvariantError when a block or slot is owned twice or lost. Tests call it after every operation.
  void check() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::cache
