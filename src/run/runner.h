// Carries out a plan: integers → arrays, forward, sample. Thread rule: the engine thread, which also makes and destroys
// it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/cache_store.h"
#include "cache/manager.h"
#include "model/model.h"
#include "run/drafter.h"
#include "sample/sampler.h"
#include "schedule/plan.h"
#include "schedule/scheduler.h"

namespace tutti::run {

struct RowResult {
  schedule::SampledToken token;  // token -1 and not failed: the row sampled nothing in this step
  sample::Fault fault = sample::Fault::none;
  std::vector<std::optional<sample::Logprobs>> logprobs;  // per sampled token
  std::vector<sample::Logprobs> prompt_logprobs;  // of the prompt tokens after the row's tokens that wanted logits
  std::vector<TokenId> drafts;  // guesses of the tokens that follow, as many as the plan wanted or fewer
};

class Runner {
 public:
  Runner(std::shared_ptr<const model::Model> model, std::unique_ptr<cache::CacheStore> store,
         const ops::Numerics& numerics, ThreadPool* pool, const kernels::KernelTable* table);
  ~Runner();

  void add(SequenceId sequence, sample::SamplingParams params, int choice, std::span<const TokenId> prompt);
  void remove(SequenceId sequence);

  // One result per row of the plan, in its order. Throws what the model throws; nothing of the row states has changed
  // then.
  std::vector<RowResult> run(const schedule::StepPlan& plan, const schedule::Scheduler& scheduler,
                             const cache::CacheManager& caches);
  // After run() threw: true when all sequences lost their caches.
  bool recover();
  const model::Model& model() const { return *model_; }

  // An entry of the prefix cache as bytes, between steps: a block's K and V; or the recurrent state, the draft head's
  // hidden vector if there is one, and the block that the state's last tokens are in if they fill none.
  size_t most_bytes(const cache::EntryName& entry) const;
  bool fits(const cache::EntryName& entry, size_t bytes) const;  // such an entry can have so many
  std::vector<std::byte> save(const cache::EntryPlace& entry);
  void load(const cache::EntryPlace& entry, std::span<const std::byte> bytes);

 private:
  size_t hidden_bytes(const cache::EntryName& entry) const;  // of the draft head's vector
  std::shared_ptr<ops::StepContext> make_step(ops::StepBatch batch) const;
  ops::StepBatch assemble(const schedule::StepPlan& plan, const schedule::Scheduler& scheduler,
                          const cache::CacheManager& caches) const;

  // The logits of one row's tokens, in the step's array.
  struct LogitRows {
    const float* data = nullptr;
    size_t stride = 0;  // width of a row
    size_t vocab = 0;   // ids that exist
    std::span<const float> line(int i) const { return {data + static_cast<size_t>(i) * stride, vocab}; }
  };
  std::vector<RowResult> sample_rows(const schedule::StepPlan& plan, const schedule::Scheduler& scheduler,
                                     const float* logits);
  void sample_row(const schedule::PlannedRow& row, const schedule::Sequence& sequence, const LogitRows& logits,
                  RowResult& result);
  void sample_tokens(const schedule::PlannedRow& row, const LogitRows& logits, RowResult& result);

  const std::shared_ptr<const ops::mx::Stream> stream_;
  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<cache::CacheStore> store_;
  ops::Numerics numerics_;
  ThreadPool* pool_;
  const kernels::KernelTable* table_;
  sample::Sampler sampler_;
  std::optional<Drafter> drafter_;  // of models that draft
  std::unordered_map<SequenceId, sample::RowState> rows_;
};

}  // namespace tutti::run
