// Guesses of the tokens that follow, by the model's multi-token-prediction head. The head runs one position behind the
// trunk: its entry t is made of what the trunk made of token t and of the token after it. Guesses need not be exact, so
// nothing here decides a bit of an answer. Thread rule: the engine thread.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/cache_store.h"
#include "cache/manager.h"
#include "model/model.h"
#include "run/shortlist.h"
#include "schedule/plan.h"
#include "schedule/scheduler.h"

namespace tutti::run {

struct RowResult;

class Drafter {
 public:
  explicit Drafter(const model::Model& model) : model_(model), shortlist_(model.info().vocab) {}

  // The hidden vectors that go with the copied slots.
  void copy(std::span<const cache::Copy> copies);
  void remove(SequenceId sequence) { pending_.erase(sequence); }
  // The hidden vector that goes with a slot; empty when it has none.
  std::span<const float> hidden_of(SlotId slot) const;
  void set_hidden(SlotId slot, std::span<const float> hidden);

  struct Step {
    const schedule::StepPlan& plan;
    const ops::StepBatch& batch;   // of the trunk's pass
    const ops::mx::array& hidden;  // [T, H] what it made of each token, evaluated
    const cache::CacheManager& caches;
    cache::CacheStore& store;
    const schedule::Scheduler& scheduler;
    const std::function<std::shared_ptr<ops::StepContext>(ops::StepBatch)>& make_step;
  };
  // After sampling: the head guesses for the rows that want it. What it has to catch up with of the others is kept
  // until they do, or it has become much.
  void run(const Step& step, std::vector<RowResult>& results);

 private:
  // Consecutive entries of one sequence.
  struct Entries {
    int first = 0;  // position of the first
    std::vector<TokenId> tokens;
    std::vector<float> hidden;  // [tokens, H]
    bool lost = false;          // some were thrown away: no more guesses for this sequence
    int end() const { return first + static_cast<int>(tokens.size()); }
  };
  struct Row {
    size_t index = 0;  // in the plan
    Entries entries;
    int wanted = 0;  // guesses still wanted
  };
  Entries new_entries(const Step& step, size_t r, const schedule::SampledToken& sampled) const;
  void append(Entries& pending, Entries&& fresh) const;
  std::vector<Row> begin_rows(const Step& step, const std::vector<RowResult>& results);
  void remember(const Step& step);
  void choose_tokens(const Step& step, const std::vector<Row>& rows);
  void advance(const Step& step, std::vector<Row>& rows, std::vector<RowResult>& results);

  const model::Model& model_;
  Shortlist shortlist_;
  std::unordered_map<int32_t, std::vector<float>> hidden_;  // by slot: of the last token that its state has seen
  std::unordered_map<SequenceId, Entries> pending_;         // what the head has not run yet
};

}  // namespace tutti::run
