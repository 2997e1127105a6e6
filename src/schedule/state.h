// What the scheduler knows, and the moves between its queues. Private to this room.
#pragma once

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

  Sequence* find(SequenceId sequence) const;
  void enqueue(Sequence& sequence);
  void dequeue(Sequence& sequence);
  // The sequence has just got its caches.
  void admit(Sequence& sequence, int64_t rank);
  // Caches go back, tokens stay; it waits to be recomputed.
  void send_back(Sequence& sequence);
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

// planner.cpp
void plan_step(State& state, StepPlan& plan, int token_budget);

}  // namespace tutti::schedule
