// What the scheduler knows, and the moves between its queues. Private to this room.
#pragma once

#include <climits>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "schedule/scheduler.h"

namespace tutti::schedule {

// A live sequence is in exactly one of `running` (it holds caches) and `waiting` (it holds none).
struct State {
  State(SchedulerOptions options, cache::CacheManager& caches) : options(options), caches(caches) {}

  SchedulerOptions options;
  cache::CacheManager& caches;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> all;
  std::vector<Sequence*> running;                           // most senior first: by (rank, arrival)
  std::map<int64_t, std::map<int64_t, Sequence*>> waiting;  // by priority, then by arrival
  int64_t now_ms = 0;
  int64_t next_arrival = 0;
  int64_t step = 0;
  int64_t served = 0;  // rows committed so far
  int64_t preemptions = 0;
  int paused = 0;  // sequences that are paused
  int draft_limit = INT_MAX;

  Sequence* find(SequenceId sequence) const;
  void enqueue(Sequence& sequence);
  void dequeue(Sequence& sequence);
  // The sequence has just got its caches.
  void admit(Sequence& sequence, int64_t rank);
  // What a sequence without caches would find in the prefix cache, tokens.
  int cached_prefix(const Sequence& sequence) const;
  // Gives it to the sequence, if there is room. It must be admitted or released in this step.
  void restore(Sequence& sequence, std::vector<cache::Copy>& copies);
  // Caches go back, tokens stay; it waits to be recomputed. `intact`: its caches hold what `computed` says.
  void send_back(Sequence& sequence, bool intact);
  // Caches go back; what they hold is left in the prefix cache if it is `intact`.
  void release(Sequence& sequence, bool intact);
  // Takes it out of everything and destroys it.
  TokenEvent finish(Sequence& sequence, TokenEvent event);

  // The smallest priority of any live sequence: nothing ages beyond it.
  int64_t best_priority() const;
  int64_t effective_priority(const Sequence& sequence, int64_t best) const;
};

inline bool senior(const Sequence& a, const Sequence& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.arrival < b.arrival;
}

// The row that computes n tokens of the sequence from where it stands.
PlannedRow make_row(const Sequence& sequence, int n);
// Guesses that its next step may verify: within its answer, its context, and before the next periodic snapshot.
int usable_drafts(const State& state, const Sequence& sequence);
// Has the row's guesses, so many, verified with it.
void add_drafts(State& state, PlannedRow& row, int drafts);

inline cache::Prefix prefix_of(const Sequence& sequence) {
  return {*sequence.chain, sequence.tokens};
}

// Where the state of the sequence is wanted in (after, upto], ascending: prompt boundaries, multiples of the period.
std::vector<int> snapshot_positions(const Sequence& sequence, int period, int after, int upto);
// Tokens that both begin with; 0 under different salts.
int common_prefix(const Sequence& a, const Sequence& b);

// planner.cpp
// Adds to the rows of a plan the states that they are to emit.
void plan_snapshots(State& state, StepPlan& plan);
void plan_step(State& state, StepPlan& plan, int token_budget);

}  // namespace tutti::schedule
