#include "run/runner.h"

#include <mlx/ops.h>
#include <mlx/stream.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "base/error.h"

namespace tutti::run {

namespace mx = mlx::core;
using schedule::PlannedRow;
using schedule::StepPlan;

namespace {

// MLX never ends the thread of a stream, and a process may make many runners: streams are used again.
std::shared_ptr<const mx::Stream> lease_stream() {
  static std::mutex mutex;
  static auto* const idle = new std::vector<mx::Stream>;  // never destroyed: a lease may outlive main()
  const std::lock_guard lock(mutex);
  if (idle->empty()) idle->push_back(mx::new_thread_unsafe_stream(mx::Device::cpu));
  const mx::Stream stream = idle->back();
  idle->pop_back();
  return {new mx::Stream(stream), [](const mx::Stream* leased) {
            const std::lock_guard give_back(mutex);
            idle->push_back(*leased);
            delete leased;
          }};
}

}  // namespace

Runner::Runner(std::shared_ptr<const model::Model> model, std::unique_ptr<cache::CacheStore> store,
               const ops::Numerics& numerics, ThreadPool* pool, const kernels::KernelTable* table)
    : stream_(lease_stream()),
      model_(std::move(model)),
      store_(std::move(store)),
      numerics_(numerics),
      pool_(pool),
      table_(table) {
  // A stream of its own, so that nothing of a step ever waits on another's work.
  mx::set_default_stream(*stream_);
  if (model_->info().drafts) drafter_.emplace(*model_);
}

Runner::~Runner() {
  mx::synchronize();
}

void Runner::add(SequenceId sequence, sample::SamplingParams params, int choice, std::span<const TokenId> prompt) {
  const bool added = rows_.try_emplace(sequence, std::move(params), choice, prompt).second;
  TUTTI_CHECK(added);
}

void Runner::remove(SequenceId sequence) {
  rows_.erase(sequence);
  if (drafter_) drafter_->remove(sequence);
}

ops::StepBatch Runner::assemble(const StepPlan& plan, const schedule::Scheduler& scheduler,
                                const cache::CacheManager& caches) const {
  const size_t T = static_cast<size_t>(plan.tokens()), R = plan.rows.size();
  ops::StepBatch batch;
  batch.tokens.reserve(T);
  batch.positions.reserve(3 * T);
  batch.first.reserve(R);
  batch.slot.reserve(R);
  batch.row_begin.reserve(R + 1);
  batch.block_begin.reserve(R + 1);
  batch.row_begin.push_back(0);
  batch.block_begin.push_back(0);
  for (const PlannedRow& row : plan.rows) {
    const schedule::Sequence* sequence = scheduler.find(row.sequence);
    const int known = row.n - static_cast<int>(row.drafts.size());
    TUTTI_CHECK(sequence != nullptr && row.first + known <= static_cast<int>(sequence->tokens.size()));
    const auto tokens = sequence->tokens.begin() + row.first;
    batch.tokens.insert(batch.tokens.end(), tokens, tokens + known);
    batch.tokens.insert(batch.tokens.end(), row.drafts.begin(), row.drafts.end());
    for (int i = 0; i < row.n; ++i) batch.positions.push_back(row.first + i);
    for (const PlannedRow::Emit& emit : row.emits)
      batch.emits.push_back({.token = batch.row_begin.back() + emit.position - 1 - row.first, .slot = emit.slot.value});
    batch.row_begin.push_back(batch.T());
    batch.first.push_back(row.first);
    batch.slot.push_back(caches.slot(row.sequence).value);
    const size_t needed = static_cast<size_t>(cache::CacheManager::blocks_for(row.first + row.n));
    const std::span<const BlockId> blocks = caches.blocks(row.sequence);
    TUTTI_CHECK(blocks.size() >= needed);
    for (const BlockId block : blocks.first(needed)) batch.block_table.push_back(block.value);
    batch.block_begin.push_back(static_cast<int32_t>(batch.block_table.size()));
    for (int i = batch.T() - row.logits; i < batch.T(); ++i) batch.logits_of.push_back(i);
  }
  for (int axis = 1; axis < 3; ++axis)  // text: the same on all three axes
    for (size_t t = 0; t < T; ++t) batch.positions.push_back(batch.positions[t]);
  return batch;
}

std::shared_ptr<ops::StepContext> Runner::make_step(ops::StepBatch batch) const {
  auto step = std::make_shared<ops::StepContext>();
  step->batch = std::move(batch);
  step->numerics = numerics_;
  step->pool = pool_;
  step->table = table_;
  return step;
}

std::vector<RowResult> Runner::run(const StepPlan& plan, const schedule::Scheduler& scheduler,
                                   const cache::CacheManager& caches) {
  const ops::Step step = make_step(assemble(plan, scheduler, caches));  // 3 assemble
  store_->copy(plan.copies);
  if (drafter_) drafter_->copy(plan.copies);
  const int L = step->batch.L();
  const model::ForwardOutput out = model_->forward(step, *store_);  // 4 forward: [L, V]
  const bool follows = drafter_ && std::ranges::any_of(plan.rows, &PlannedRow::follow);
  mx::array logits = out.logits;
  std::vector<mx::array> outputs = store_->pending();
  outputs.push_back(logits);
  if (follows) outputs.push_back(*out.hidden);
  mx::eval(std::move(outputs));
  if (L > 0 && !logits.flags().row_contiguous) {
    logits = mx::contiguous(logits);
    logits.eval();
  }
  const int width = model_->info().logits;
  if (L > 0 && (logits.dtype() != mx::float32 || logits.size() != static_cast<size_t>(L) * static_cast<size_t>(width)))
    throw InvariantError("the model's logits are not float32 [L, V]");
  std::vector<RowResult> results = sample_rows(plan, scheduler, L > 0 ? logits.data<float>() : nullptr);  // 5 sample
  if (follows) {
    const auto make = [this](ops::StepBatch batch) { return make_step(std::move(batch)); };
    drafter_->run({plan, step->batch, *out.hidden, caches, *store_, scheduler, make}, results);
  }
  // Only now, when nothing can throw any more: a step that throws has changed no row state.
  for (const RowResult& result : results) {
    if (result.token.token < 0) continue;
    sample::RowState& row = rows_.at(result.token.sequence);
    row.accept(result.token.token);
    for (const TokenId token : result.token.after) row.accept(token);
  }
  return results;
}

std::vector<RowResult> Runner::sample_rows(const StepPlan& plan, const schedule::Scheduler& scheduler,
                                           const float* logits) {
  const model::ModelInfo& info = model_->info();
  std::vector<RowResult> results;
  results.reserve(plan.rows.size());
  for (const PlannedRow& row : plan.rows) {
    RowResult& result = results.emplace_back();
    result.token.sequence = row.sequence;
    const schedule::Sequence& sequence = *scheduler.find(row.sequence);
    sample_row(row, sequence, {logits, static_cast<size_t>(info.logits), static_cast<size_t>(info.vocab)}, result);
    logits += static_cast<size_t>(row.logits) * static_cast<size_t>(info.logits);
  }
  return results;
}

void Runner::sample_row(const PlannedRow& row, const schedule::Sequence& sequence, const LogitRows& logits,
                        RowResult& result) {
  if (row.logits == 0) return;
  const sample::RowState& state = rows_.at(row.sequence);
  const int end = row.first + row.n, prompt = sequence.prompt_tokens();
  if (state.params().prompt_logprobs >= 0) {
    for (int i = end - row.logits; i < std::min(end, prompt - 1); ++i) {
      const std::span<const float> line = logits.line(i - (end - row.logits));
      result.prompt_logprobs.push_back(
          sampler_.logprobs_of(line, sequence.tokens[i + 1], state.params().prompt_logprobs));
      if (!std::isfinite(result.prompt_logprobs.back().chosen.logprob)) result.fault = sample::Fault::non_finite_logits;
    }
  }
  if (row.samples && result.fault == sample::Fault::none) sample_tokens(row, logits, result);
  if (result.fault == sample::Fault::none) return;
  result.token = {.sequence = row.sequence, .failed = true};
  result.logprobs.clear();
  result.prompt_logprobs.clear();
}

// The row's next token, with the random number of its own position; and as long as it is what was guessed, the one
// after it: so the answer is the same however many guesses were made.
void Runner::sample_tokens(const PlannedRow& row, const LogitRows& logits, RowResult& result) {
  std::optional<sample::RowState> ahead;  // the row as it will be once the guesses are accepted
  const sample::RowState* state = &rows_.at(row.sequence);
  const size_t drafts = row.drafts.size();
  const int first_line = row.logits - 1 - static_cast<int>(drafts), end = row.first + row.n - static_cast<int>(drafts);
  for (size_t i = 0; i <= drafts; ++i) {
    sample::Sampled sampled =
        sampler_.sample(logits.line(first_line + static_cast<int>(i)), *state, static_cast<uint64_t>(end) + i);
    // A fault behind an accepted guess may be behind the answer's end, too; if not, the next step meets it.
    if (i == 0) result.fault = sampled.fault;
    if (sampled.fault != sample::Fault::none) return;
    result.logprobs.push_back(std::move(sampled.logprobs));
    if (i == 0)
      result.token.token = sampled.token;
    else
      result.token.after.push_back(sampled.token);
    if (i == drafts || sampled.token != row.drafts[i]) return;
    if (!ahead) ahead.emplace(*state);
    ahead->accept(sampled.token);
    state = &*ahead;
  }
}

size_t Runner::hidden_bytes(const cache::EntryName& entry) const {
  if (!drafter_ || entry.kind != cache::EntryName::Kind::state) return 0;
  return sizeof(float) * static_cast<size_t>(model_->info().hidden);
}

size_t Runner::most_bytes(const cache::EntryName& entry) const {
  const bool state = entry.kind == cache::EntryName::Kind::state;
  return (state ? store_->bytes_of(cache::Copy::What::slot) : 0) + hidden_bytes(entry) +
         (entry.tokens.empty() ? 0 : store_->bytes_of(cache::Copy::What::block));
}

bool Runner::fits(const cache::EntryName& entry, size_t bytes) const {
  return bytes == most_bytes(entry) || bytes == most_bytes(entry) - hidden_bytes(entry);
}

std::vector<std::byte> Runner::save(const cache::EntryPlace& entry) {
  std::vector<std::byte> bytes;
  bytes.reserve(most_bytes(entry.name));
  const auto append = [&](cache::Copy::What what, int32_t index) {
    const size_t begin = bytes.size();
    bytes.resize(begin + store_->bytes_of(what));
    store_->save(what, index, std::span(bytes).subspan(begin));
  };
  if (entry.slot.valid()) {
    append(cache::Copy::What::slot, entry.slot.value);
    const auto hidden = std::as_bytes(drafter_ ? drafter_->hidden_of(entry.slot) : std::span<const float>{});
    bytes.insert(bytes.end(), hidden.begin(), hidden.end());
  }
  if (entry.block.valid()) append(cache::Copy::What::block, entry.block.value);
  return bytes;
}

void Runner::load(const cache::EntryPlace& entry, std::span<const std::byte> bytes) {
  TUTTI_CHECK(fits(entry.name, bytes.size()));
  const size_t hidden = bytes.size() == most_bytes(entry.name) ? hidden_bytes(entry.name) : 0;
  if (entry.slot.valid()) {
    const size_t state = store_->bytes_of(cache::Copy::What::slot);
    store_->load(cache::Copy::What::slot, entry.slot.value, bytes.first(state));
    bytes = bytes.subspan(state);
    if (drafter_) {
      std::vector<float> vector(hidden / sizeof(float));
      std::memcpy(vector.data(), bytes.data(), hidden);
      drafter_->set_hidden(entry.slot, vector);
      bytes = bytes.subspan(hidden);
    }
  }
  if (entry.block.valid()) store_->load(cache::Copy::What::block, entry.block.value, bytes);
}

bool Runner::recover() {
  mx::synchronize();  // nothing of the failed step writes any more
  return store_->recover();
}

}  // namespace tutti::run
