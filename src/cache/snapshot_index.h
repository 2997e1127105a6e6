// Snapshots of recurrent state: what position of which prefix each slot holds. Least recently used first.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "cache/prefix_key.h"

namespace tutti::cache {

struct Snapshot {
  SlotId slot;                // the state after `position` tokens
  int position = 0;           // ≥ 1
  PrefixKey parent;           // of the full blocks before it
  std::vector<TokenId> tail;  // the position % kBlockTokens tokens after those
  BlockId partial;            // the block that begins with `tail`; invalid when that is empty
};

class SnapshotIndex {
 public:
  int size() const { return static_cast<int>(by_slot_.size()); }
  void add(Snapshot snapshot);
  // Null when that position of that prefix has none.
  const Snapshot* find(const PrefixKey& parent, std::span<const TokenId> tail) const;
  // Of the snapshots right behind the blocks of `parent`: the longest whose tail begins `tokens`.
  const Snapshot* longest(const PrefixKey& parent, std::span<const TokenId> tokens) const;
  const Snapshot& at(SlotId slot) const { return by_slot_.at(slot).snapshot; }
  void touch(SlotId slot);
  Snapshot remove(SlotId slot);
  std::vector<SlotId> by_age() const;  // used longest ago first
  std::vector<SlotId> under(const PrefixKey& parent) const;
  std::optional<SlotId> oldest() const;

 private:
  struct Entry {
    Snapshot snapshot;
    int64_t used = 0;
  };
  std::unordered_map<SlotId, Entry> by_slot_;
  std::map<int64_t, SlotId> by_use_;
  std::unordered_map<PrefixKey, std::vector<SlotId>> by_parent_;
  int64_t clock_ = 0;
};

}  // namespace tutti::cache
