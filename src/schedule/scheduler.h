// Who runs what in the next step. No phases: a prompt chunk and a decoded token are rows with another n.
// Thread rule: the engine thread. Sees integers only.
//
// A plan: decoding rows first, one token each (all of them, while the token cap allows; else they take turns, oldest
// served first, and every other step keeps room for prompts); then prompts in chunks that fill the step's token budget:
// half of it goes to the oldest prompt, half to those that need least, so that a short one is not stuck behind a long
// one and none starves. Lower priorities come first; a waiting sequence gains a step of priority with time. Blocks are
// reserved for the tokens of the step only. When they run out, a row takes those of a paused row, else of the youngest
// running row if that is younger than itself; else it waits with its caches. What is preempted gives its caches back,
// keeps its tokens, and is recomputed once all of them fit. So the oldest row always goes on, and one full row always
// fits (checked at construction).
//
// A sequence that is admitted starts at the longest prefix that the caches can give back. One whose prompt begins as
// another's that is being computed right now waits until that one has left what they share in the cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/manager.h"
#include "schedule/plan.h"
#include "schedule/sequence.h"

namespace tutti::schedule {

struct SchedulerOptions {
  int max_num_batched_tokens = 2048;  // cap of tokens per step; may be below the number of rows
  int max_num_seqs = 64;              // rows that hold caches at once
  int max_model_len = 0;              // tokens of one sequence, prompt and answer
  int min_prompt_tokens = 16;         // prompt tokens per step while any prompt waits (the cap still holds)
  int max_prompt_logits =
      128;  // logits rows per step for prompt log-probabilities: a row of them is a whole vocabulary
  int64_t priority_age_ms = 30'000;  // a sequence that waits so long gains one step of priority
  bool prefix_caching = true;
  int max_drafts = 0;             // guesses verified per row and step; 0: no speculation
  int snapshot_every = 0;         // also snapshots at the multiples of so many tokens; 0: only where prompts say so
  int max_prompt_snapshots = 16;  // per prompt: its first message's end and its last ones
  std::vector<std::string> validate() const;  // all problems
};

struct SampledToken {
  SequenceId sequence;
  TokenId token = -1;
  std::vector<TokenId> after;  // the tokens after it, as many as its drafts were right
  bool failed = false;         // a fault of this row: it ends with FinishReason::error
};

// What happened to a sequence in a step.
struct TokenEvent {
  SequenceId sequence;
  TokenId token = -1;  // -1: no token (finished without one)
  FinishReason finish = FinishReason::none;
  TokenId stop_token = -1;
  int prompt_tokens = 0, generated = 0, cached_tokens = 0;
  int drafts_accepted = 0, drafts_rejected = 0;  // so far
};

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, cache::CacheManager& caches);
  ~Scheduler();

  void add(std::shared_ptr<const Request> request);  // any length that max_model_len allows; CHECKed
  // The sequence ends now, wherever it is; its caches go back. Unknown ids are no error. Returns its last event, if it
  // lived.
  std::vector<TokenEvent> abort(SequenceId sequence);
  void set_paused(SequenceId sequence, bool paused);
  void advance_clock(int64_t now_ms);  // any monotonic clock; only priorities look at it

  // token_budget: what fits the step's time, from the engine's measurement; the cap of the options holds as well.
  StepPlan plan(int token_budget);
  // Applies the results: appends tokens (several events per row then, one after the other), finishes sequences, gives
  // caches back.
  std::vector<TokenEvent> commit(const StepPlan& plan, std::span<const SampledToken> sampled);
  // At most so many guesses are asked for per row from now on; 0: the draft head need not run.
  void limit_drafts(int drafts);
  // Guesses for the sequence's next step; unknown ids are no error.
  void set_drafts(SequenceId sequence, std::vector<TokenId> drafts);
  // The step threw: none of its rows advanced and their caches are lost; they are recomputed. With `all`, every
  // sequence's are.
  void roll_back(const StepPlan& plan, bool all);
  // A plan of one row alone, for rerunning what a failed step held; empty when the sequence is gone or can't be
  // reserved.
  StepPlan plan_alone(SequenceId sequence);
  std::vector<TokenEvent> fail(SequenceId sequence);  // ends with FinishReason::error

  const Sequence* find(SequenceId sequence) const;
  int running() const;    // hold caches
  int waiting() const;    // queued or preempted
  int decoding() const;   // of the running, those whose next token is all that is left to compute
  bool has_work() const;  // a plan could be non-empty (paused rows aside)
  int64_t preemptions() const;

  void check() const;  // invariants; tests call it after every operation

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::schedule
