// Numbered blocks, who holds them, and by which prefix a full one can be found again. A block is in exactly one of: in
// use (a sequence holds it), kept (only snapshots hold it: its first tokens are theirs), idle (nobody holds it, but its
// prefix can still be found; least recently used first), free.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "cache/prefix_key.h"

namespace tutti::cache {

class BlockPool {
 public:
  enum class Holder { sequence, snapshot };

  explicit BlockPool(int blocks);

  int total() const { return static_cast<int>(blocks_.size()); }
  int available() const { return total() - in_use_; }  // not in use
  int published() const { return static_cast<int>(by_key_.size()); }
  int in_use_by_sequences(BlockId block) const { return at(block).sequences; }

  bool can_take() const { return !free_.empty() || !idle_.empty(); }
  struct Published {
    BlockId block;
    PrefixKey key;
    std::vector<TokenId> tokens;
  };
  struct Taken {
    BlockId block;
    std::optional<Published> lost;  // what could be found until now
  };
  // A block for a sequence: a free one, else the idle one that was used longest ago. can_take() must hold.
  Taken take();
  void hold(BlockId block, Holder holder);
  void let_go(BlockId block, Holder holder);

  // The full block can be found by its key from now on; false when another block is found by it already.
  bool publish(BlockId block, const PrefixKey& key, std::span<const TokenId> tokens);
  // The block of the prefix whose last block holds `tokens`; invalid when there is none.
  BlockId find(const PrefixKey& key, std::span<const TokenId> tokens) const;
  // An idle block is as if it had become so just now.
  void touch(BlockId block);
  // All that can be found: blocks in use first, then the idle ones from the one used last to the one used longest ago.
  std::vector<Published> all_published() const;
  // Nothing can be found any more.
  void forget();

  // Throws InvariantError unless exactly these holders are known.
  void check(std::span<const int> sequences, std::span<const int> snapshots) const;

 private:
  struct Block {
    int sequences = 0, snapshots = 0;  // holders
    bool published = false;
    int64_t idle_since = 0;  // > 0: key in idle_
    PrefixKey key;
    std::vector<TokenId> tokens;  // when published
  };
  Block& at(BlockId block) { return blocks_.at(static_cast<size_t>(block.value)); }
  const Block& at(BlockId block) const { return blocks_.at(static_cast<size_t>(block.value)); }
  void settle(BlockId id);  // nobody holds it any more
  void unpublish(Block& block);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;        // a stack, so that memory that has been touched is used before fresh memory is
  std::map<int64_t, BlockId> idle_;  // by when it became idle
  std::unordered_map<PrefixKey, BlockId> by_key_;
  int in_use_ = 0;
  int64_t clock_ = 0;
};

}  // namespace tutti::cache
