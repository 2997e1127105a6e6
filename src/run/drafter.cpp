#include "run/drafter.h"

#include <mlx/transforms.h>

#include <algorithm>
#include <utility>

#include "run/runner.h"

namespace tutti::run {

namespace mx = ops::mx;

namespace {

// Entries of a row that wait at most: 4 KB each in a small model.
constexpr size_t kMostPending = 128;
// Catching up is work that others wait for: among more rows than this, while guesses don't pay, a row whose entries
// have become too many is given up rather than caught up with.
constexpr size_t kCrowd = 4;

}  // namespace

void Drafter::copy(std::span<const cache::Copy> copies) {
  for (const cache::Copy& c : copies) {
    if (c.what != cache::Copy::What::slot) continue;
    const auto from = hidden_.find(c.from);
    if (from != hidden_.end())
      hidden_[c.to] = std::vector<float>(from->second);
    else
      hidden_.erase(c.to);
  }
}

std::span<const float> Drafter::hidden_of(SlotId slot) const {
  const auto it = hidden_.find(slot.value);
  return it == hidden_.end() ? std::span<const float>{} : std::span<const float>(it->second);
}

void Drafter::set_hidden(SlotId slot, std::span<const float> hidden) {
  if (hidden.empty())
    hidden_.erase(slot.value);
  else
    hidden_[slot.value].assign(hidden.begin(), hidden.end());
}

// The entries that the step has made possible: from the one of the token before the row, whose successor was not known
// until now, to the last whose successor is known.
Drafter::Entries Drafter::new_entries(const Step& step, size_t r, const schedule::SampledToken& sampled) const {
  const schedule::PlannedRow& planned = step.plan.rows[r];
  const int H = model_.info().hidden, begin = step.batch.row_begin[r];
  const float* hidden = step.hidden.data<float>();
  // Tokens of the row that stay; those after them were wrong guesses.
  const int kept = planned.drafts.empty() ? planned.n : 1 + static_cast<int>(sampled.after.size());
  Entries made{.first = planned.first};
  const auto row = step.batch.tokens.begin() + begin;
  made.tokens.assign(row, row + kept);
  if (sampled.token >= 0) made.tokens.push_back(sampled.after.empty() ? sampled.token : sampled.after.back());
  const auto before = hidden_.find(step.batch.slot[r]);
  // Just restored at the end of a block: that block is shared, its last entry is another sequence's to write.
  const auto restores_row = [&](const cache::Copy& copy) {
    return copy.what == cache::Copy::What::slot && copy.to == step.batch.slot[r];
  };
  const bool shared = planned.first % cache::kBlockTokens == 0 && std::ranges::any_of(step.plan.copies, restores_row);
  if (planned.first > 0 && before != hidden_.end() && !shared) {
    made.first = planned.first - 1;
    made.hidden = before->second;
  } else {
    made.tokens.erase(made.tokens.begin());
  }
  const int64_t own = static_cast<int64_t>(made.tokens.size()) - static_cast<int64_t>(made.hidden.size()) / H;
  made.hidden.insert(made.hidden.end(), hidden + int64_t{begin} * H, hidden + (begin + own) * H);
  return made;
}

// The new entries begin where the pending ones end, or one before it; else those belong to a row that was preempted.
void Drafter::append(Entries& pending, Entries&& fresh) const {
  const int overlap = pending.end() - fresh.first;
  if (pending.tokens.empty() || overlap < 0 || overlap > 1 || fresh.tokens.empty()) {
    if (!fresh.tokens.empty()) pending = std::move(fresh);
    return;
  }
  pending.tokens.insert(pending.tokens.end(), fresh.tokens.begin() + overlap, fresh.tokens.end());
  pending.hidden.insert(pending.hidden.end(), fresh.hidden.begin() + int64_t{overlap} * model_.info().hidden,
                        fresh.hidden.end());
}

std::vector<Drafter::Row> Drafter::begin_rows(const Step& step, const std::vector<RowResult>& results) {
  std::vector<Row> rows;
  for (size_t r = 0; r < step.plan.rows.size(); ++r) {
    const schedule::PlannedRow& planned = step.plan.rows[r];
    if (!planned.follow || results[r].token.failed) continue;
    Entries& pending = pending_[planned.sequence];
    if (pending.lost) continue;
    append(pending, new_entries(step, r, results[r].token));
    const int wanted = results[r].token.token >= 0 ? planned.drafts_ahead : 0;
    if (pending.tokens.empty() || (wanted == 0 && pending.tokens.size() <= kMostPending)) continue;
    if (wanted == 0 && !step.plan.guessing && step.plan.rows.size() > kCrowd) {
      pending = {.lost = true};
      continue;
    }
    rows.push_back({r, std::exchange(pending, {}), wanted});
  }
  return rows;
}

void Drafter::remember(const Step& step) {
  const int H = model_.info().hidden;
  const float* hidden = step.hidden.data<float>();
  const auto keep = [&](int32_t slot, int token) {
    hidden_[slot].assign(hidden + int64_t{token} * H, hidden + int64_t{token + 1} * H);
  };
  for (int r = 0; r < step.batch.R(); ++r) keep(step.batch.slot[r], step.batch.row_begin[r + 1] - 1);
  for (const auto& emit : step.batch.emits) keep(emit.slot, emit.token);
}

void Drafter::run(const Step& step, std::vector<RowResult>& results) {
  std::vector<Row> rows = begin_rows(step, results);
  remember(step);
  if (!shortlist_.all()) choose_tokens(step, rows);
  while (!rows.empty()) advance(step, rows, results);
}

void Drafter::choose_tokens(const Step& step, const std::vector<Row>& rows) {
  shortlist_.clear();
  for (const Row& row : rows)
    if (row.wanted > 0) shortlist_.add(step.scheduler.find(step.plan.rows[row.index].sequence)->tokens);
}

// One pass: each row's entries are written; of the rows that want guesses, the last entry gives one and is followed by
// the next pass's only entry.
void Drafter::advance(const Step& step, std::vector<Row>& rows, std::vector<RowResult>& results) {
  const int H = model_.info().hidden, V = model_.info().logits;
  ops::StepBatch batch;
  std::vector<float> hidden;
  batch.row_begin = batch.block_begin = {0};
  for (const Row& row : rows) {
    const SequenceId sequence = step.plan.rows[row.index].sequence;
    const Entries& entries = row.entries;
    batch.tokens.insert(batch.tokens.end(), entries.tokens.begin(), entries.tokens.end());
    hidden.insert(hidden.end(), entries.hidden.begin(), entries.hidden.end());
    for (int position = entries.first; position < entries.end(); ++position) batch.positions.push_back(position);
    batch.row_begin.push_back(batch.T());
    batch.first.push_back(entries.first);
    batch.slot.push_back(step.batch.slot[row.index]);
    for (const BlockId block : step.caches.blocks(sequence)) batch.block_table.push_back(block.value);
    batch.block_begin.push_back(static_cast<int32_t>(batch.block_table.size()));
    if (row.wanted > 0) batch.logits_of.push_back(batch.T() - 1);
  }
  const size_t T = batch.tokens.size();
  for (int axis = 1; axis < 3; ++axis)  // text: the same on all three axes
    for (size_t t = 0; t < T; ++t) batch.positions.push_back(batch.positions[t]);

  const auto pass = step.make_step(std::move(batch));
  pass->head_ranges = shortlist_.ranges();
  const mx::array in(hidden.begin(), {static_cast<int>(T), H}, mx::float32);
  const model::ForwardOutput out = model_.draft(pass, in, step.store);
  std::vector<mx::array> outputs = step.store.pending();
  outputs.push_back(out.logits);
  outputs.push_back(*out.hidden);
  mx::eval(std::move(outputs));

  std::vector<Row> next;
  int line = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].wanted == 0) continue;
    const float* logits = out.logits.data<float>() + int64_t{line++} * V;
    const TokenId guess = shortlist_.best(logits);
    results[rows[r].index].drafts.push_back(guess);
    const int last = pass->batch.row_begin[r + 1] - 1;
    const int position = rows[r].entries.end();
    // The next entry may lie behind the sequence's last block: then there are fewer guesses.
    const size_t blocks = step.caches.blocks(step.plan.rows[rows[r].index].sequence).size();
    if (rows[r].wanted == 1 || position / cache::kBlockTokens >= static_cast<int>(blocks)) continue;
    const float* made = out.hidden->data<float>() + int64_t{last} * H;
    next.push_back({rows[r].index, {position, {guess}, {made, made + H}}, rows[r].wanted - 1});
  }
  rows = std::move(next);
}

}  // namespace tutti::run
