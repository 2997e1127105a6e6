// A piece of a cached prefix by itself: what can leave the memory for the disk and come back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cache/prefix_key.h"

namespace tutti::cache {

struct EntryName {
  enum class Kind : uint32_t {
    block = 1,  // K and V of kBlockTokens tokens
    state = 2,  // of the recurrent layers, with the K and V of the tokens behind the last full block
  };
  Kind kind = Kind::block;
  PrefixKey key;                // block: of the prefix that ends with it; state: of the full blocks before it
  std::vector<TokenId> tokens;  // block: its tokens; state: those behind the full blocks
  int position = 0;             // state: tokens that it has seen
  friend bool operator==(const EntryName&, const EntryName&) = default;
};

// An entry that is, or was until now, in memory.
struct EntryPlace {
  EntryName name;
  BlockId block;  // invalid for a state right behind a full block
  SlotId slot;    // invalid for a block
};

// What can be had from outside the memory.
class EntryLookup {
 public:
  virtual ~EntryLookup() = default;
  virtual bool has_block(const PrefixKey& key) const = 0;
  // Of the states behind the blocks of `parent`: the one with most tokens, all of which begin `tokens`. Its tokens.
  virtual std::optional<std::vector<TokenId>> longest_state(const PrefixKey& parent,
                                                            std::span<const TokenId> tokens) const = 0;
};

}  // namespace tutti::cache
