// The order of processing written as plainly as possible: double precision, full sorts, no fast paths.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "sample/params.h"

namespace tutti::sample::naive {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

inline void edit(std::vector<float>& logits, const SamplingParams& p, std::span<const TokenId> prompt,
                 std::span<const TokenId> output) {
  for (auto [id, bias] : p.logit_bias) logits[id] += bias;
  std::map<TokenId, int> generated, anywhere;
  for (TokenId t : output) ++generated[t], ++anywhere[t];
  for (TokenId t : prompt) ++anywhere[t];
  for (auto [id, n] : anywhere)
    logits[id] = logits[id] > 0 ? logits[id] / p.repetition_penalty : logits[id] * p.repetition_penalty;
  for (auto [id, n] : generated) {
    logits[id] -= p.frequency_penalty * static_cast<float>(n);
    logits[id] -= p.presence_penalty;
  }
  if (!p.allowed.empty())
    for (size_t i = 0; i < logits.size(); ++i)
      if (std::find(p.allowed.begin(), p.allowed.end(), static_cast<TokenId>(i)) == p.allowed.end())
        logits[i] = kBanned;
  for (const auto& word : p.bad_words) {
    std::vector<TokenId> with(output.begin(), output.end());
    with.push_back(word.back());
    if (with.size() >= word.size() && std::equal(word.rbegin(), word.rend(), with.rbegin()))
      logits[word.back()] = kBanned;
  }
  if (static_cast<int>(output.size()) < p.min_tokens)
    for (TokenId t : p.blocked_early) logits[t] = kBanned;
}

struct Entry {
  int id;
  float logit;  // divided by the temperature
  double p;
};

inline void normalise(std::vector<Entry>& entries) {
  double sum = 0;
  for (const Entry& e : entries) sum += e.p;
  for (Entry& e : entries) e.p /= sum;
}

// What can be drawn, most likely first.
inline std::vector<Entry> distribution(const std::vector<float>& logits, const SamplingParams& p) {
  std::vector<Entry> entries;
  const float max = *std::max_element(logits.begin(), logits.end());
  if (max == kBanned) return entries;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float l = (logits[i] - max) / p.temperature;
    if (l > kBanned) entries.push_back({static_cast<int>(i), l, std::exp(static_cast<double>(l))});
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < entries.size()) entries.resize(static_cast<size_t>(p.top_k));
  normalise(entries);
  if (p.top_p < 1) {
    double mass = 0;
    size_t n = 0;
    do mass += entries[n++].p;
    while (n < entries.size() && mass < p.top_p);
    entries.resize(n);
    normalise(entries);
  }
  std::erase_if(entries, [&, first = entries[0].p](const Entry& e) { return e.p < p.min_p * first; });
  normalise(entries);
  return entries;
}

}  // namespace tutti::sample::naive
