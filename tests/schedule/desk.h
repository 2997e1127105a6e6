// A scheduler with its caches and a model that always says the same, for tests that read as sentences of integers:
//   desk.add({.id = 1, .prompt = 100, .max_tokens = 3});
//   EXPECT_EQ(desk.step(64), "1@0+64");      // sequence 1, from position 0, 64 tokens
//   EXPECT_EQ(desk.step(64), "1@64+36!");    // "!": a token is sampled
// After every operation the invariants are checked.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "cache/manager.h"
#include "schedule/scheduler.h"

namespace tutti::schedule {

struct DeskOptions {
  int blocks = 1000, slots = 64, cap = 2048, rows = 64, max_model_len = 4096, min_prompt = 16, max_logits = 128;
};

struct DeskRequest {
  int id = 0, prompt = 1, max_tokens = 1000, min_tokens = 0;
  std::vector<TokenId> stop_ids = {};
  int64_t priority = 0;
  int logits_from = -1;
};

class Desk {
 public:
  static constexpr TokenId kWord = 7;

  explicit Desk(DeskOptions o = {})
      : caches({.blocks = o.blocks, .slots = o.slots}),
        scheduler({.max_num_batched_tokens = o.cap,
                   .max_num_seqs = o.rows,
                   .max_model_len = o.max_model_len,
                   .min_prompt_tokens = o.min_prompt,
                   .max_prompt_logits = o.max_logits},
                  caches) {}

  static SequenceId seq(int id) { return SequenceId{id}; }

  void add(const DeskRequest& r) {
    auto request = std::make_shared<Request>();
    request->id = seq(r.id);
    request->prompt.assign(r.prompt, 1);
    request->max_tokens = r.max_tokens;
    request->min_tokens = r.min_tokens;
    request->stop_ids = r.stop_ids;
    request->priority = r.priority;
    request->logits_from = r.logits_from;
    scheduler.add(request);
    scheduler.check();
  }

  StepPlan plan(int budget = 1 << 20) {
    StepPlan plan = scheduler.plan(budget);
    scheduler.check();
    for (const SequenceId id : plan.preempted) preempted += (preempted.empty() ? "" : " ") + std::to_string(id.value);
    return plan;
  }

  void commit(const StepPlan& plan, TokenId token = kWord) {
    std::vector<SampledToken> sampled;
    for (const PlannedRow& row : plan.rows)
      sampled.push_back(
          {.sequence = row.sequence, .token = row.samples ? token : -1, .failed = failing == row.sequence.value});
    for (const TokenEvent& event : scheduler.commit(plan, sampled)) note(event);
    scheduler.check();
  }

  // Plans and commits; the plan as a sentence.
  std::string step(int budget = 1 << 20, TokenId token = kWord) {
    const StepPlan made = plan(budget);
    commit(made, token);
    return words(made);
  }

  static std::string words(const StepPlan& plan) {
    std::string text;
    for (const PlannedRow& row : plan.rows) {
      text += (text.empty() ? "" : " ") + std::to_string(row.sequence.value) + "@" + std::to_string(row.first) + "+" +
              std::to_string(row.n) + (row.samples ? "!" : "");
      if (row.logits != (row.samples ? 1 : 0)) text += "^" + std::to_string(row.logits);
    }
    return text;
  }

  void note(const TokenEvent& event) {
    if (event.finish != FinishReason::none) ended[static_cast<int>(event.sequence.value)] = event;
  }

  cache::CacheManager caches;
  Scheduler scheduler;
  std::map<int, TokenEvent> ended;  // last events
  std::string preempted;            // all so far, in order
  int64_t failing = -1;             // the sequence whose row reports a fault
};

}  // namespace tutti::schedule
