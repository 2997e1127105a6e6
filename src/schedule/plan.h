// The decision of one step, a value. Reserved: carrying it out can't fail for room.
#pragma once

#include <vector>

#include "base/ids.h"
#include "cache/copy.h"

namespace tutti::schedule {

struct PlannedRow {
  SequenceId sequence;
  int first = 0;  // position of the row's first token
  int n = 0;      // tokens
  int logits =
      0;  // the last `logits` tokens of the row want logits: 1 where a token is sampled, 0 in an unfinished prompt
  bool samples = false;         // the last token's logits give the sequence's next token
  std::vector<TokenId> drafts;  // the last tokens of the row are guesses: all its tokens want logits
  bool follow = false;          // guesses may be wanted of this row: the draft head must be able to catch up
  int drafts_ahead = 0;         // guesses wanted for the row's next step
  struct Emit {
    int position = 0;  // in (first, first + n]
    SlotId slot;
  };
  std::vector<Emit> emits;  // the state after `position` tokens goes to `slot` as well; ascending
};

struct StepPlan {
  std::vector<PlannedRow> rows;
  std::vector<cache::Copy> copies;    // to be carried out, in order, before the step
  std::vector<SequenceId> preempted;  // lost their caches while this plan was made
  int64_t step = 0;
  bool guessing = false;  // guesses pay for a batch of this size

  bool empty() const { return rows.empty(); }
  int tokens() const {
    int n = 0;
    for (const auto& row : rows) n += row.n;
    return n;
  }
};

}  // namespace tutti::schedule
