#include "sample/sampler.h"

#include <algorithm>

#include "sample/filters.h"
#include "sample/numeric.h"
#include "sample/row_logprobs.h"

namespace tutti::sample {
namespace {

// The candidate at which the running sum of weights, in the order of ids, passes u · total. One of weight 0 is never
// chosen.
int pick(const std::vector<float>& weights, double u, std::vector<double>& sums) {
  double left = u * block_sums(weights, sums);
  size_t block = 0, last = 0;  // last: a block that has weight, where rounding can leave us
  for (; block < sums.size(); ++block) {
    if (sums[block] > 0) last = block;
    if (left < sums[block]) break;
    left -= sums[block];
  }
  if (block == sums.size()) block = last;
  int chosen = -1;
  const size_t end = std::min(weights.size(), (block + 1) * kSumBlock);
  for (size_t i = block * kSumBlock; i < end; ++i) {
    if (weights[i] <= 0) continue;
    chosen = static_cast<int>(i);
    if (left < weights[i]) break;
    left -= weights[i];
  }
  return chosen;
}

}  // namespace

RowState::RowState(SamplingParams params, int choice, std::span<const TokenId> prompt)
    : params_(std::move(params)), choice_(choice), constraint_(params_.constraint.get()) {
  if (params_.repetition_penalty == 1) return;
  seen_.assign(prompt.begin(), prompt.end());
  std::sort(seen_.begin(), seen_.end());
  seen_.erase(std::unique(seen_.begin(), seen_.end()), seen_.end());
}

void RowState::accept(TokenId token) {
  output_.push_back(token);
  if (constraint_.get() != nullptr) constraint_.get()->accept(token);
  if (params_.presence_penalty != 0 || params_.frequency_penalty != 0) {
    const auto at = std::lower_bound(counts_.begin(), counts_.end(), token,
                                     [](const std::pair<TokenId, int>& c, TokenId t) { return c.first < t; });
    if (at != counts_.end() && at->first == token)
      ++at->second;
    else
      counts_.insert(at, {token, 1});
  }
  if (params_.repetition_penalty != 1) {
    const auto at = std::lower_bound(seen_.begin(), seen_.end(), token);
    if (at == seen_.end() || *at != token) seen_.insert(at, token);
  }
}

Sampled Sampler::sample(std::span<const float> logits, const RowState& row, uint64_t position) {
  const SamplingParams& params = row.params();
  Sampled result;
  const Scan raw = scan(logits);
  if (!raw.finite) {
    result.fault = Fault::non_finite_logits;
    return result;
  }
  result.token = choose(logits, raw, row, position);
  if (result.token < 0) {
    result.fault = Fault::no_legal_token;
    return result;
  }
  if (params.logprobs) {
    const RowLogprobs all(logits, raw.max);
    result.logprobs = Logprobs{all.of(result.token), params.logprob_ids.empty() ? all.top(params.top_logprobs, order_)
                                                                                : all.of_ids(params.logprob_ids)};
  }
  return result;
}

TokenId Sampler::choose(std::span<const float> logits, const Scan& raw, const RowState& row, uint64_t position) {
  const SamplingParams& params = row.params();
  Work work{params, row.output_, row.counts_, row.seen_};
  work.source = logits;
  work.max = raw.max;
  work.constraint = row.constraint_.get();
  if (any_active(Stage::logits, params)) {
    work_.assign(logits.begin(), logits.end());
    work.logits = work_;
    apply_filters(Stage::logits, work);
    const Scan edited = scan(work_);
    if (params.greedy()) return edited.argmax;
    work.source = work_;
    work.max = edited.max;
  }
  if (params.greedy()) return raw.argmax;
  work_.resize(logits.size());
  work.logits = work_;
  return draw(work, row, position);
}

TokenId Sampler::draw(Work& work, const RowState& row, uint64_t position) {
  weights_.clear();
  work.weights = std::move(weights_);
  apply_filters(Stage::temperature, work);
  apply_filters(Stage::candidates, work);
  weigh(work);
  const double u = uniform(row.params().seed, static_cast<uint32_t>(row.choice()), position, Purpose::token);
  const int chosen = pick(work.weights, u, sums_);
  const TokenId token = chosen < 0 || work.all ? chosen : work.ids[static_cast<size_t>(chosen)];
  weights_ = std::move(work.weights);
  return token;
}

Logprobs Sampler::logprobs_of(std::span<const float> logits, TokenId token, int top) {
  const RowLogprobs all(logits, scan(logits).max);
  return {all.of(token), all.top(top, order_)};
}

}  // namespace tutti::sample
