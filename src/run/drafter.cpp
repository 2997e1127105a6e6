#include "run/drafter.h"

#include <mlx/transforms.h>

#include <algorithm>

#include "run/runner.h"

namespace tutti::run {

namespace mx = ops::mx;

// A row of one pass through the head: consecutive entries of one sequence.
struct Drafter::Row {
  size_t index = 0;  // in the plan
  int first = 0;     // position of the first entry
  std::vector<TokenId> tokens;
  std::vector<float> hidden;  // [tokens, H]
  int wanted = 0;             // guesses still wanted
};

void Drafter::copy(std::span<const cache::Copy> copies) {
  for (const cache::Copy& c : copies) {
    if (c.what != cache::Copy::What::slot) continue;
    const auto from = hidden_.find(c.from);
    if (from != hidden_.end()) hidden_[c.to] = std::vector<float>(from->second);
  }
}

// The entries that the step has made possible: from the one of the token before the row, whose successor was not known
// until now, to the last whose successor is known.
std::vector<Drafter::Row> Drafter::begin_rows(const Step& step, const std::vector<RowResult>& results) {
  const int H = model_.info().hidden;
  const float* hidden = step.hidden.data<float>();
  std::vector<Row> rows;
  for (size_t r = 0; r < step.plan.rows.size(); ++r) {
    const schedule::PlannedRow& planned = step.plan.rows[r];
    if (!planned.follow || results[r].token.failed) continue;
    Row row{.index = r, .first = planned.first, .wanted = results[r].token.token >= 0 ? planned.drafts_ahead : 0};
    const int begin = step.batch.row_begin[r];
    const auto known = step.batch.tokens.begin() + begin;
    // Tokens of the row that stay; those after them were wrong guesses.
    const int kept = planned.drafts.empty() ? planned.n : 1 + static_cast<int>(results[r].token.after.size());
    std::vector<TokenId> tokens(known, known + kept);
    if (results[r].token.token >= 0)
      tokens.push_back(results[r].token.after.empty() ? results[r].token.token : results[r].token.after.back());
    const auto before = hidden_.find(step.batch.slot[r]);
    if (planned.first > 0 && before != hidden_.end()) {
      row.first = planned.first - 1;
      row.hidden = before->second;
    } else {
      tokens.erase(tokens.begin());
    }
    if (tokens.empty()) continue;
    const int64_t own = static_cast<int64_t>(tokens.size()) - static_cast<int64_t>(row.hidden.size()) / H;
    row.hidden.insert(row.hidden.end(), hidden + int64_t{begin} * H, hidden + (begin + own) * H);
    row.tokens = std::move(tokens);
    rows.push_back(std::move(row));
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
  while (!rows.empty()) advance(step, rows, results);
}

// One pass: each row's entries are written; of the rows that want guesses, the last entry gives one and is followed by
// the next pass's only entry.
void Drafter::advance(const Step& step, std::vector<Row>& rows, std::vector<RowResult>& results) {
  const int H = model_.info().hidden, V = model_.info().logits, vocab = model_.info().vocab;
  ops::StepBatch batch;
  std::vector<float> hidden;
  batch.row_begin = batch.block_begin = {0};
  for (const Row& row : rows) {
    const SequenceId sequence = step.plan.rows[row.index].sequence;
    batch.tokens.insert(batch.tokens.end(), row.tokens.begin(), row.tokens.end());
    hidden.insert(hidden.end(), row.hidden.begin(), row.hidden.end());
    for (size_t i = 0; i < row.tokens.size(); ++i) batch.positions.push_back(row.first + static_cast<int>(i));
    batch.row_begin.push_back(batch.T());
    batch.first.push_back(row.first);
    batch.slot.push_back(step.batch.slot[row.index]);
    for (const BlockId block : step.caches.blocks(sequence)) batch.block_table.push_back(block.value);
    batch.block_begin.push_back(static_cast<int32_t>(batch.block_table.size()));
    if (row.wanted > 0) batch.logits_of.push_back(batch.T() - 1);
  }
  const size_t T = batch.tokens.size();
  for (int axis = 1; axis < 3; ++axis)  // text: the same on all three axes
    for (size_t t = 0; t < T; ++t) batch.positions.push_back(batch.positions[t]);

  const ops::Step pass = step.make_step(std::move(batch));
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
    const auto guess = static_cast<TokenId>(std::max_element(logits, logits + vocab) - logits);
    results[rows[r].index].drafts.push_back(guess);
    const int last = pass->batch.row_begin[r + 1] - 1;
    const int position = rows[r].first + pass->batch.row_tokens(static_cast<int>(r));
    // The next entry may lie behind the sequence's last block: then there are fewer guesses.
    const size_t blocks = step.caches.blocks(step.plan.rows[rows[r].index].sequence).size();
    if (rows[r].wanted == 1 || position / cache::kBlockTokens >= static_cast<int>(blocks)) continue;
    const float* made = out.hidden->data<float>() + int64_t{last} * H;
    next.push_back({rows[r].index, position, {guess}, {made, made + H}, rows[r].wanted - 1});
  }
  rows = std::move(next);
}

}  // namespace tutti::run
