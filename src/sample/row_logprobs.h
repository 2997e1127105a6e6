// The log-softmax of one row of raw logits, computed for the tokens that are asked for. -inf is given as such.
#pragma once

#include <span>
#include <vector>

#include "sample/params.h"

namespace tutti::sample {

class RowLogprobs {
 public:
  // logits [V], which must outlive this; max is their greatest value.
  RowLogprobs(std::span<const float> logits, float max);

  TokenLogprob of(TokenId token) const;
  // The n greatest, by value, equal ones by lower id. Tokens of probability zero are never listed.
  std::vector<TokenLogprob> top(int n, std::vector<int>& scratch) const;
  // Of the given ids, in the order of `top`.
  std::vector<TokenLogprob> of_ids(std::span<const TokenId> ids) const;

 private:
  TokenLogprob of(TokenId token, int rank) const;

  std::span<const float> logits_;
  double normaliser_;  // log Σ e^l
};

}  // namespace tutti::sample
