#include "schedule/state.h"

#include <algorithm>

#include "base/error.h"

namespace tutti::schedule {

Sequence* State::find(SequenceId sequence) const {
  const auto it = all.find(sequence);
  return it == all.end() ? nullptr : it->second.get();
}

void State::enqueue(Sequence& sequence) {
  waiting[sequence.request->priority].emplace(sequence.arrival, &sequence);
}

void State::dequeue(Sequence& sequence) {
  const auto queue = waiting.find(sequence.request->priority);
  TUTTI_CHECK(queue != waiting.end() && queue->second.erase(sequence.arrival) == 1);
  if (queue->second.empty()) waiting.erase(queue);
}

void State::admit(Sequence& sequence, int64_t rank) {
  dequeue(sequence);
  sequence.status = Status::running;
  sequence.rank = rank;
  if (!sequence.admitted) sequence.cached = sequence.computed;
  sequence.admitted = true;
  const auto after = [](const Sequence* a, const Sequence* b) { return senior(*a, *b); };
  running.insert(std::upper_bound(running.begin(), running.end(), &sequence, after), &sequence);
}

int State::cached_prefix(const Sequence& sequence) const {
  // Prompt log-probabilities need every token's logits.
  if (sequence.chain == nullptr || sequence.request->logits_from >= 0) return 0;
  // The last token is computed in any case: its logits are wanted.
  return caches.match_prefix(prefix_of(sequence), static_cast<int>(sequence.tokens.size()) - 1);
}

void State::restore(Sequence& sequence, std::vector<cache::Copy>& copies) {
  TUTTI_CHECK(sequence.status != Status::running && sequence.computed == 0);
  if (sequence.chain == nullptr || sequence.request->logits_from >= 0) return;
  const int limit = static_cast<int>(sequence.tokens.size()) - 1;
  sequence.computed = caches.restore(sequence.request->id, prefix_of(sequence), limit, copies);
}

void State::release(Sequence& sequence, bool intact) {
  if (intact && sequence.chain != nullptr)
    caches.keep(sequence.request->id, prefix_of(sequence), sequence.computed);
  else
    caches.release(sequence.request->id);
}

void State::send_back(Sequence& sequence, bool intact) {
  TUTTI_CHECK(sequence.status == Status::running);
  release(sequence, intact);
  std::erase(running, &sequence);
  sequence.drafts.clear();
  sequence.computed = 0;
  sequence.status = Status::preempted;
  enqueue(sequence);
}

TokenEvent State::finish(Sequence& sequence, TokenEvent event) {
  event.sequence = sequence.request->id;
  event.prompt_tokens = sequence.prompt_tokens();
  event.generated = sequence.generated();
  event.cached_tokens = sequence.cached;
  event.drafts_accepted = sequence.drafts_accepted;
  event.drafts_rejected = sequence.drafts_rejected;
  if (sequence.status == Status::running) {
    release(sequence, event.finish != FinishReason::error);
    std::erase(running, &sequence);
  } else {
    dequeue(sequence);
  }
  if (sequence.paused) --paused;
  all.erase(event.sequence);
  return event;
}

int64_t State::best_priority() const {
  int64_t best = waiting.empty() ? INT64_MAX : waiting.begin()->first;
  for (const Sequence* row : running) best = std::min(best, row->request->priority);
  return best;
}

int64_t State::effective_priority(const Sequence& sequence, int64_t best) const {
  const int64_t priority = sequence.request->priority;
  // Differences of any two priorities fit an unsigned number.
  const uint64_t above_best = static_cast<uint64_t>(priority) - static_cast<uint64_t>(best);
  const uint64_t gained =
      static_cast<uint64_t>(std::max<int64_t>(0, now_ms - sequence.queued_ms) / options.priority_age_ms);
  return gained >= above_best ? best : priority - static_cast<int64_t>(gained);
}

int usable_drafts(const State& state, const Sequence& sequence) {
  const int size = static_cast<int>(sequence.tokens.size());
  int n = std::min({static_cast<int>(sequence.drafts.size()), sequence.request->max_tokens - sequence.generated() - 1,
                    state.options.max_model_len - size});
  const int period = state.options.snapshot_every;
  // The state at a multiple of the period is wanted: it must be that of tokens that are no guesses.
  if (period > 0 && sequence.chain != nullptr) n = std::min(n, (size / period + 1) * period - 1 - size);
  return std::max(n, 0);
}

void add_drafts(State& state, PlannedRow& row, int drafts) {
  const Sequence& sequence = *state.find(row.sequence);
  row.drafts.assign(sequence.drafts.begin(), sequence.drafts.begin() + drafts);
  row.n = row.logits = 1 + drafts;
  const auto slots = state.caches.draft_slots(row.sequence);
  for (size_t i = 0; i < slots.size(); ++i)
    row.emits.push_back({.position = row.first + 1 + static_cast<int>(i), .slot = slots[i]});
}

std::vector<int> snapshot_positions(const Sequence& sequence, int period, int after, int upto) {
  std::vector<int> positions;
  for (const int position : sequence.snapshot_at)
    if (position > after && position <= upto) positions.push_back(position);
  if (period > 0)
    for (int position = (after / period + 1) * period; position <= upto; position += period)
      positions.push_back(position);
  std::ranges::sort(positions);
  positions.erase(std::ranges::unique(positions).begin(), positions.end());
  return positions;
}

int common_prefix(const Sequence& a, const Sequence& b) {
  const auto &x = a.chain->keys(), &y = b.chain->keys();
  if (x.front() != y.front()) return 0;
  // Chained keys: once they differ, they differ for good.
  size_t same = 1, end = std::min(x.size(), y.size()) + 1;
  while (end - same > 1) {
    const size_t middle = (same + end) / 2;
    (x[middle - 1] == y[middle - 1] ? same : end) = middle;
  }
  const size_t begin = (same - 1) * cache::kBlockTokens, size = std::min(a.tokens.size(), b.tokens.size());
  const auto [in_a, in_b] =
      std::mismatch(a.tokens.begin() + static_cast<int64_t>(begin), a.tokens.begin() + static_cast<int64_t>(size),
                    b.tokens.begin() + static_cast<int64_t>(begin));
  return static_cast<int>(in_a - a.tokens.begin());
}

PlannedRow make_row(const Sequence& sequence, int n) {
  const Request& request = *sequence.request;
  const int end = sequence.computed + n;
  PlannedRow row{.sequence = request.id, .first = sequence.computed, .n = n};
  row.samples = end == static_cast<int>(sequence.tokens.size()) && request.max_tokens > 0;
  row.logits = row.samples ? 1 : 0;
  row.follow = sequence.follow;
  if (request.logits_from >= 0) {
    // The last prompt token's logits belong to the first answer token, so they are not a prompt log-probability.
    const int from = std::max({sequence.computed, request.logits_from, sequence.logits_done});
    if (from < std::min(end, sequence.prompt_tokens() - 1)) row.logits = end - from;
  }
  return row;
}

}  // namespace tutti::schedule
