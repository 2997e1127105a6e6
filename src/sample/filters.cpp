#include "sample/filters.h"

#include <algorithm>
#include <cfloat>
#include <limits>

#include "sample/numeric.h"

namespace tutti::sample {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// The logit of a token, or null for an id that the row does not have.
float* logit_of(Work& work, TokenId token) {
  return token >= 0 && static_cast<size_t>(token) < work.logits.size() ? &work.logits[static_cast<size_t>(token)]
                                                                       : nullptr;
}

void mask(Work& work, TokenId token) {
  if (float* l = logit_of(work, token)) *l = kMasked;
}

// Keeps an edited logit out of +inf; -inf stays, it means banned.
float bounded(float logit) {
  return std::min(logit, FLT_MAX);
}

// Logits

void apply_logit_bias(Work& work) {
  for (const auto& [token, bias] : work.params.logit_bias)
    if (float* l = logit_of(work, token)) *l = bounded(*l + bias);
}

void apply_repetition_penalty(Work& work) {
  const float penalty = work.params.repetition_penalty;
  for (TokenId token : work.seen)
    if (float* l = logit_of(work, token)) *l = bounded(*l > 0 ? *l / penalty : *l * penalty);
}

void apply_count_penalties(Work& work) {
  for (const auto& [token, count] : work.counts) {
    float* l = logit_of(work, token);
    if (!l) continue;
    *l = *l - work.params.frequency_penalty * static_cast<float>(count);
    *l = bounded(*l - work.params.presence_penalty);
  }
}

void apply_allowed(Work& work) {
  std::vector<std::pair<TokenId, float>> kept;
  kept.reserve(work.params.allowed.size());
  for (TokenId token : work.params.allowed)
    if (const float* l = logit_of(work, token)) kept.emplace_back(token, *l);
  std::fill(work.logits.begin(), work.logits.end(), kMasked);
  for (const auto& [token, logit] : kept) work.logits[static_cast<size_t>(token)] = logit;
}

void apply_constraint(Work& work) {
  std::vector<uint32_t> may_come((work.logits.size() + 31) / 32);
  work.constraint->allow(may_come);
  for (size_t t = 0; t < work.logits.size(); ++t)
    if ((may_come[t / 32] >> (t % 32) & 1) == 0) work.logits[t] = kMasked;
}

void apply_bad_words(Work& work) {
  for (const std::vector<TokenId>& word : work.params.bad_words) {
    if (word.empty() || word.size() - 1 > work.output.size()) continue;
    const auto tail = work.output.last(word.size() - 1);
    if (std::equal(tail.begin(), tail.end(), word.begin())) mask(work, word.back());
  }
}

void apply_min_tokens(Work& work) {
  if (work.output.size() >= static_cast<size_t>(work.params.min_tokens)) return;
  for (TokenId token : work.params.blocked_early) mask(work, token);
}

// Temperature

void apply_temperature(Work& work) {
  const float shift = work.max > kMasked ? work.max : 0;
  shift_and_scale(work.source, shift, work.params.temperature, work.logits.data());
}

// Candidates

void apply_top_k(Work& work) {
  if (static_cast<size_t>(work.params.top_k) >= work.logits.size()) return;
  select_top(work.logits, work.params.top_k, work.ids);
  std::sort(work.ids.begin(), work.ids.end());
  work.all = false;
}

float logit_at(const Work& work, int position) {
  const auto p = static_cast<size_t>(position);
  return work.logits[work.all ? p : static_cast<size_t>(work.ids[p])];
}

// Whether candidate a ranks before b.
bool ranks_before(const Work& work, int a, int b) {
  const float la = logit_at(work, a), lb = logit_at(work, b);
  return la != lb ? la > lb : a < b;
}

// The member (a position) at which the mass, taken in order of rank, reaches `wanted`; the last one if none does.
int walk(const Work& work, std::vector<int>& members, double mass, double wanted) {
  const auto before = [&](int a, int b) { return ranks_before(work, a, b); };
  auto sorted = members.begin();
  for (ptrdiff_t step = 256; sorted != members.end(); step *= 4) {
    const auto end = sorted + std::min(step, members.end() - sorted);
    if (end != members.end()) std::nth_element(sorted, end, members.end(), before);
    std::sort(sorted, end, before);
    for (; sorted != end; ++sorted) {
      mass += work.weights[static_cast<size_t>(*sorted)];
      if (mass >= wanted) return *sorted;
    }
  }
  return members.back();
}

// The lowest ranking member of the smallest set of that mass; -1: all are needed. A histogram over the logits, which
// are ≤ 0, finds the bucket in which the mass is reached; only its members are sorted.
int nucleus_border(const Work& work, double wanted) {
  constexpr size_t kBuckets = 4096;
  constexpr float kPerUnit = 128;  // the last bucket holds all that is below -32
  const int count = static_cast<int>(work.weights.size());
  const auto bucket_of = [&](int p) {
    return static_cast<size_t>(std::min(-logit_at(work, p) * kPerUnit, static_cast<float>(kBuckets - 1)));
  };
  std::vector<double> masses(kBuckets);
  for (int p = 0; p < count; ++p) masses[bucket_of(p)] += work.weights[static_cast<size_t>(p)];
  double mass = 0;
  size_t border = 0;
  while (border < kBuckets && (masses[border] == 0 || mass + masses[border] < wanted)) mass += masses[border++];
  if (border == kBuckets) return -1;
  std::vector<int> members;
  for (int p = 0; p < count; ++p)
    if (bucket_of(p) == border) members.push_back(p);
  return walk(work, members, mass, wanted);
}

void apply_top_p(Work& work) {
  weigh(work);
  std::vector<double> sums;
  const double total = block_sums(work.weights, sums);
  const int border = nucleus_border(work, static_cast<double>(work.params.top_p) * total);
  if (border < 0) return;
  const float lowest = logit_at(work, border);
  for (int p = 0; p < static_cast<int>(work.weights.size()); ++p) {
    const float l = logit_at(work, p);
    const bool kept = p <= border ? l >= lowest : l > lowest;
    work.weights[static_cast<size_t>(p)] *= kept ? 1.0f : 0.0f;
  }
}

void apply_min_p(Work& work) {
  weigh(work);
  const float floor = work.params.min_p * scan(work.weights).max;
  for (float& w : work.weights) w = w >= floor ? w : 0;
}

// THE order of processing. Masks come after every additive edit, so that no bias can revive a banned token.
constexpr Filter kFilters[] = {
    {"logit_bias", Stage::logits, [](const SamplingParams& p) { return !p.logit_bias.empty(); }, apply_logit_bias},
    {"repetition_penalty", Stage::logits, [](const SamplingParams& p) { return p.repetition_penalty != 1; },
     apply_repetition_penalty},
    {"presence_frequency", Stage::logits,
     [](const SamplingParams& p) { return p.presence_penalty != 0 || p.frequency_penalty != 0; },
     apply_count_penalties},
    {"allowed", Stage::logits, [](const SamplingParams& p) { return !p.allowed.empty(); }, apply_allowed},
    {"constraint", Stage::logits, [](const SamplingParams& p) { return p.constraint != nullptr; }, apply_constraint},
    {"bad_words", Stage::logits, [](const SamplingParams& p) { return !p.bad_words.empty(); }, apply_bad_words},
    {"min_tokens", Stage::logits, [](const SamplingParams& p) { return p.min_tokens > 0 && !p.blocked_early.empty(); },
     apply_min_tokens},
    {"temperature", Stage::temperature, [](const SamplingParams& p) { return !p.greedy(); }, apply_temperature},
    {"top_k", Stage::candidates, [](const SamplingParams& p) { return p.top_k > 0; }, apply_top_k},
    {"top_p", Stage::candidates, [](const SamplingParams& p) { return p.top_p < 1; }, apply_top_p},
    {"min_p", Stage::candidates, [](const SamplingParams& p) { return p.min_p > 0; }, apply_min_p},
};

}  // namespace

std::span<const Filter> filters() {
  return kFilters;
}

bool any_active(Stage stage, const SamplingParams& params) {
  return std::any_of(std::begin(kFilters), std::end(kFilters),
                     [&](const Filter& f) { return f.stage == stage && f.active(params); });
}

void apply_filters(Stage stage, Work& work) {
  for (const Filter& f : kFilters)
    if (f.stage == stage && f.active(work.params)) f.apply(work);
}

void weigh(Work& work) {
  if (!work.weights.empty()) return;
  if (work.all) {
    work.weights.resize(work.logits.size());
    exp_nonpositive(work.logits, work.weights.data());
    return;
  }
  std::vector<float> chosen(work.ids.size());
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = work.logits[static_cast<size_t>(work.ids[i])];
  work.weights.resize(chosen.size());
  exp_nonpositive(chosen, work.weights.data());
}

}  // namespace tutti::sample
