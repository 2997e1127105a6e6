// One step's work as flat integers: a ragged list of tokens with row boundaries. Nothing is padded. What a phase, a
// prompt chunk or a block of drafts is does not show here: a row is n tokens of one sequence from position `first`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::ops {

struct StepBatch {
  std::vector<int32_t> tokens;     // [T] token ids
  std::vector<int32_t> positions;  // [3, T] rotary positions (temporal, height, width); equal for text
  std::vector<int32_t> row_begin;  // [R+1] row r holds tokens [row_begin[r], row_begin[r+1])
  std::vector<int32_t> first;      // [R] index in its sequence of the row's first token = tokens already in the caches
  std::vector<int32_t> block_table;  // concatenated block tables
  std::vector<int32_t> block_begin;  // [R+1] row r's table is block_table[block_begin[r] …]
  std::vector<int32_t> slot;         // [R] recurrent-state slot; a row with first == 0 starts from a zero state
  struct Emit {
    int32_t token = 0, slot = 0;
  };
  std::vector<Emit>
      emits;  // after `token` (an index into tokens; never descending) its row's state goes to `slot` as well
  std::vector<int32_t> logits_of;  // [L] indices into tokens, ascending: where logits are wanted

  int T() const { return static_cast<int>(tokens.size()); }
  int R() const { return static_cast<int>(first.size()); }
  int L() const { return static_cast<int>(logits_of.size()); }
  int row_tokens(int r) const { return row_begin[r + 1] - row_begin[r]; }
  // The row's part of emits.
  std::span<const Emit> emits_of(int r) const;
  const int32_t* blocks(int r) const { return block_table.data() + block_begin[r]; }
};

// Throws std::invalid_argument naming `op` and the first field that contradicts another: sizes, boundaries that don't
// ascend, a row without tokens, a block table too short for its row, a slot written twice. Ops call it when the graph
// is built.
void check_batch(const char* op, const StepBatch& batch);

}  // namespace tutti::ops
