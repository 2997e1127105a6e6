// Log-probabilities of the raw model distribution: before biases, penalties, masks and temperature.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sample/numeric.h"
#include "sample/row_logprobs.h"

namespace tutti::sample {
namespace {

bool in_row(std::span<const float> logits, TokenId token) {
  return token >= 0 && static_cast<size_t>(token) < logits.size();
}

}  // namespace

RowLogprobs::RowLogprobs(std::span<const float> logits, float max) : logits_(logits) {
  normaliser_ = std::isinf(max) ? 0 : static_cast<double>(max) + std::log(sum_exp(logits, max));
}

TokenLogprob RowLogprobs::of(TokenId token, int rank) const {
  return {token, static_cast<float>(static_cast<double>(logits_[static_cast<size_t>(token)]) - normaliser_), rank};
}

TokenLogprob RowLogprobs::of(TokenId token) const {
  if (!in_row(logits_, token))
    return {token, -std::numeric_limits<float>::infinity(), static_cast<int>(logits_.size()) + 1};
  return of(token, rank_of(logits_, token));
}

std::vector<TokenLogprob> RowLogprobs::top(int n, std::vector<int>& scratch) const {
  select_top(logits_, n, scratch);
  std::vector<TokenLogprob> list;
  list.reserve(scratch.size());
  for (size_t i = 0; i < scratch.size(); ++i) list.push_back(of(scratch[i], static_cast<int>(i) + 1));
  return list;
}

std::vector<TokenLogprob> RowLogprobs::of_ids(std::span<const TokenId> ids) const {
  std::vector<TokenLogprob> list;
  list.reserve(ids.size());
  for (TokenId id : ids) list.push_back(of(id));
  std::sort(list.begin(), list.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
  });
  return list;
}

}  // namespace tutti::sample
