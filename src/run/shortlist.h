// Of which tokens a guess is chosen: the draft head's logits are wanted of these only, since all rows of a large head
// cost a third of a step. Guesses need not be exact, so what is left out costs a guess now and then, never an answer.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "ops/layers.h"

namespace tutti::run {

class Shortlist {
 public:
  // Ids are ordered by how early byte-pair merging made them, so the first ones are the frequent ones; control tokens
  // are the last. vocab: ids that exist.
  explicit Shortlist(int vocab);
  // All tokens: the vocabulary is small.
  bool all() const { return all_; }
  void clear();
  // Tokens of a row's prompt and answer: what has been said is said again.
  void add(std::span<const TokenId> tokens);
  // In panels of 16 ids, ascending; empty when all.
  const std::vector<ops::PanelRange>& ranges();
  // The id with the highest logit among those of ranges(); the lowest of equals.
  TokenId best(const float* logits);

 private:
  const int vocab_;
  const bool all_;
  std::vector<char> wanted_;  // by panel
  std::vector<ops::PanelRange> ranges_;
  bool stale_ = true;
};

}  // namespace tutti::run
