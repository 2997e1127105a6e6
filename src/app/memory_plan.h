// How the memory for caches is split into blocks and slots, and how long a sequence may get. Pure arithmetic.
#pragma once

#include <cstdint>

#include "cache/specs.h"

namespace tutti::app {

struct MemoryWishes {
  int64_t budget = 0;         // --kv-cache-memory-bytes; 0: half of `available`
  int64_t available = 0;      // bytes free after the weights
  int64_t model_max_len = 0;  // of the checkpoint
  int max_model_len = 0;      // --max-model-len; 0: as long as possible
  int max_num_seqs = 0;
  int draft_slots = 0;  // for states between guesses, if memory allows
  bool prefix_caching = false;
  int64_t snapshot_bytes = -1;  // --prefix-cache-snapshot-bytes, beyond the budget; -1: 0.4 × the bytes of the blocks
};

struct MemoryPlan {
  int blocks = 0, slots = 0;
  int draft_slots = 0;     // slots beyond those, for states between guesses
  int snapshots = 0;       // slots beyond those, for the prefix cache
  int snapshot_every = 0;  // tokens whose blocks take as much as a snapshot, rounded up to whole blocks
  int max_model_len = 0;   // effective: one full sequence always fits
  int64_t bytes = 0;       // of all of these
};

// Throws OptionError when not even one sequence of one block fits, or when an explicit --max-model-len does not.
MemoryPlan plan_memory(const cache::CacheSpecs& specs, const MemoryWishes& wishes);

}  // namespace tutti::app
