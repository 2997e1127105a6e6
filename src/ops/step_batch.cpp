#include "ops/step_batch.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/table.h"

namespace tutti::ops {
namespace {

void require(bool ok, const char* op, const std::string& what) {
  if (!ok) throw std::invalid_argument(std::string("[").append(op) + "] batch: " + what);
}

bool ascending(const std::vector<int32_t>& v) {
  return std::adjacent_find(v.begin(), v.end(), [](int32_t a, int32_t b) { return a >= b; }) == v.end();
}

}  // namespace

std::span<const StepBatch::Emit> StepBatch::emits_of(int r) const {
  const auto before = [](const Emit& emit, int32_t token) { return emit.token < token; };
  const auto begin = std::lower_bound(emits.begin(), emits.end(), row_begin[r], before);
  const auto end = std::lower_bound(begin, emits.end(), row_begin[r + 1], before);
  return {begin, end};
}

void check_batch(const char* op, const StepBatch& batch) {
  const int T = batch.T(), R = batch.R();
  const auto rows = static_cast<size_t>(R);
  require(T > 0 && R > 0, op, "no tokens");
  require(batch.positions.size() == 3 * batch.tokens.size(), op, "positions are not [3, T]");
  require(batch.row_begin.size() == rows + 1 && batch.row_begin.front() == 0 && batch.row_begin.back() == T, op,
          "row_begin does not span the tokens");
  require(ascending(batch.row_begin), op, "row_begin does not ascend");
  require(batch.block_begin.size() == rows + 1 && batch.block_begin.front() == 0 &&
              batch.block_begin.back() == static_cast<int32_t>(batch.block_table.size()),
          op, "block_begin does not span the block tables");
  require(batch.slot.size() == rows, op, "slot is not [R]");
  for (int r = 0; r < R; ++r) {
    const int tokens = batch.first[r] + batch.row_tokens(r);
    const int blocks = batch.block_begin[r + 1] - batch.block_begin[r];
    require(batch.first[r] >= 0, op, "first is negative");
    require(int64_t{blocks} * kernels::kBlockTokens >= tokens, op,
            "row " + std::to_string(r) + " has " + std::to_string(blocks) + " blocks for " + std::to_string(tokens) +
                " tokens");
  }
  require(std::all_of(batch.block_table.begin(), batch.block_table.end(), [](int32_t b) { return b >= 0; }), op,
          "a block is negative");
  std::vector<int32_t> slots = batch.slot;
  for (const StepBatch::Emit& emit : batch.emits) slots.push_back(emit.slot);
  std::sort(slots.begin(), slots.end());
  require(slots.front() >= 0 && ascending(slots), op, "a slot is negative or written twice");
  require(std::ranges::is_sorted(batch.emits, {}, &StepBatch::Emit::token), op, "emits descend");
  require(batch.emits.empty() || (batch.emits.front().token >= 0 && batch.emits.back().token < T), op,
          "an emit is outside the tokens");
  require(ascending(batch.logits_of), op, "logits_of does not ascend");
  require(batch.logits_of.empty() || (batch.logits_of.front() >= 0 && batch.logits_of.back() < T), op,
          "logits_of is outside the tokens");
}

}  // namespace tutti::ops
