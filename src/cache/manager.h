// The bookkeeping of all caches as one: which sequence owns which blocks and which state slot, and what of earlier
// prompts and answers can be given to a new sequence. Knows no arrays. Thread rule: the engine thread.
//
// A prefix can be restored up to position p when every full block before p can be found and, for models with recurrent
// layers, a snapshot of their state at p exists: such a state can't be cut back. Slots are one pool: those of live
// sequences and those of snapshots. What a step writes can be found only after commit(): a failed step leaves nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cache/copy.h"
#include "cache/entry.h"
#include "cache/prefix_key.h"
#include "cache/specs.h"

namespace tutti::cache {

struct ManagerOptions {
  int blocks = 0;        // blocks of kBlockTokens tokens
  int slots = 0;         // sequences that can hold caches at once
  int snapshots = 0;     // slots beyond those, for snapshots of prefixes; the store has slots + snapshots + drafts
  int drafts = 0;        // slots beyond those, for states between the tokens that a row verifies
  bool stateful = true;  // the model has recurrent layers: a prefix is of no use without a snapshot
  bool record_given_up = false;  // for a tier behind the memory
};

// A list of tokens with the keys of its full blocks.
struct Prefix {
  const PrefixChain& chain;
  std::span<const TokenId> tokens;
};

class CacheManager {
 public:
  explicit CacheManager(ManagerOptions options);
  ~CacheManager();

  // Makes room for `tokens` tokens of the sequence in all (its slot, too, the first time). All or nothing: false
  // changes nothing that a sequence holds; what is only kept for later may go.
  bool reserve(SequenceId sequence, int tokens);
  // Gives back everything of the sequence (finished, aborted or preempted). Its published blocks can still be found.
  // Unknown sequences are no error.
  void release(SequenceId sequence);

  // ---- drafts
  // Slots for the states after each of the next `n` tokens that the step in planning verifies; the state after the
  // last goes to the sequence's own. False when there are not so many (nothing has changed).
  bool plan_drafts(SequenceId sequence, int n);
  std::span<const SlotId> draft_slots(SequenceId sequence) const;
  // The step is done and `kept` ≥ 1 of its tokens stay: the state after the last of those becomes the sequence's own.
  void accept_drafts(SequenceId sequence, int kept);

  // ---- prefixes
  // The largest position ≤ limit that all caches can give back; 0 when nothing can.
  int match_prefix(const Prefix& prefix, int limit) const;
  // As match_prefix, and the sequence, which holds nothing yet, gets it: its blocks up to there, a slot, and the copies
  // to be carried out before its first step. 0: nothing to be had (or no room), nothing has changed.
  int restore(SequenceId sequence, const Prefix& prefix, int limit, std::vector<Copy>& copies);
  // A slot to which the step in planning is to write the sequence's state at `position`. Invalid when that snapshot
  // exists, or none can be kept.
  SlotId plan_snapshot(SequenceId sequence, const Prefix& prefix, int position);
  // The step is done and the sequence's caches hold `computed` tokens: its full blocks and the planned snapshots up to
  // there can be found from now on.
  void commit(SequenceId sequence, const Prefix& prefix, int computed);
  // As release, but the sequence's own state becomes the snapshot at `computed`: the next turn goes on from there.
  void keep(SequenceId sequence, const Prefix& prefix, int computed);
  // The memory has been lost: nothing can be found any more. No sequence may hold anything.
  void forget();

  // ---- a tier behind the memory
  // What has been given up since the last call, and where it still lies until the next step or install() writes there.
  std::vector<EntryPlace> take_given_up();
  // All that can be found, most valuable first.
  std::vector<EntryPlace> entries() const;
  struct Fetch {
    int position = 0;                // up to which the prefix can be restored with the entries
    std::vector<EntryName> entries;  // those that are not in memory, in the order in which to install them
  };
  // What of `tier` would let a longer prefix be restored, not beyond limit. Empty when that is hardly more than what
  // the memory gives, or there is no room.
  Fetch plan_fetch(const Prefix& prefix, int limit, const EntryLookup& tier) const;
  // What the memory holds of the prefix up to `position` is given up last.
  void touch(const Prefix& prefix, int position);
  // Room for an entry that is not in memory: fill writes its bytes, having saved what take_given_up() says first. Then
  // it can be found. False when there is no room or no need. What fill throws goes through; nothing has changed then.
  bool install(const EntryName& name, const std::function<void(const EntryPlace&)>& fill);

  bool holds(SequenceId sequence) const;
  std::span<const BlockId> blocks(SequenceId sequence) const;
  SlotId slot(SequenceId sequence) const;

  bool stateful() const;
  bool keeps_prefixes() const;  // false: without room for a snapshot nothing can ever be restored
  int total_blocks() const;
  int free_blocks() const;  // held by no sequence: what a reservation can get
  int free_slots() const;
  int cached_blocks() const;  // full blocks that can be found
  int snapshots() const;
  // Blocks that `tokens` tokens of one sequence take.
  static int blocks_for(int tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

  // Throws InvariantError when a block or slot is owned wrongly or lost. Tests call it after every operation.
  void check() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::cache
