// Random operations against a naive model: what is computed, what is finished, who is served.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "schedule/desk.h"

namespace tutti::schedule {
namespace {

// What the naive model knows of a live sequence.
struct Naive {
  int prompt = 0, max_tokens = 0;
  int computed = 0, generated = 0;
  int lost = 0;      // tokens computed and lost again
  int64_t work = 0;  // tokens computed in all
  bool paused = false;
  int64_t last_step = 0;
};

class Walk {
 public:
  explicit Walk(DeskOptions o) : o_(o), desk_(o) {}

  void add() {
    const int prompt = *rc::gen::inRange(1, o_.max_model_len - 1);
    const int max_tokens = *rc::gen::inRange(1, o_.max_model_len - prompt + 1);
    const int priority = *rc::gen::inRange(-1, 2);
    desk_.add({.id = next_, .prompt = prompt, .max_tokens = max_tokens, .priority = priority});
    naive_[next_++] = {.prompt = prompt, .max_tokens = max_tokens};
  }

  void abort() {
    if (naive_.empty()) return;
    const int id = pick();
    const auto last = desk_.scheduler.abort(Desk::seq(id));
    RC_ASSERT(last.size() == 1u && last[0].generated == naive_[id].generated);
    naive_.erase(id);
    desk_.scheduler.check();
  }

  void pause(bool paused) {
    if (naive_.empty()) return;
    const int id = pick();
    desk_.scheduler.set_paused(Desk::seq(id), paused);
    naive_[id].paused = paused;
    desk_.scheduler.check();
  }

  void resume_all() {
    for (auto& [id, n] : naive_) {
      desk_.scheduler.set_paused(Desk::seq(id), false);
      n.paused = false;
    }
  }

  void step(bool fails) {
    const int budget = *rc::gen::inRange(1, 300);
    const bool work = desk_.scheduler.has_work();
    const StepPlan plan = desk_.plan(budget);
    RC_ASSERT(plan.empty() != work);
    verify(plan, budget);
    if (fails) {
      desk_.scheduler.roll_back(plan, false);
      desk_.scheduler.check();
      for (const PlannedRow& row : plan.rows) lose(naive_.at(static_cast<int>(row.sequence.value)));
      return;
    }
    apply(plan);
    desk_.commit(plan);
    settle();
  }

  void finish() {
    resume_all();
    int64_t left = 0;
    for (const auto& [id, n] : naive_) left += n.prompt + n.max_tokens;
    // No step is in vain: each computes a token, and what is lost is bounded by what was computed.
    for (int64_t steps = 0; !naive_.empty(); ++steps) {
      RC_ASSERT(steps < 50 * (left + 10));
      step(false);
    }
    RC_ASSERT(!desk_.scheduler.has_work());
    RC_ASSERT(desk_.caches.free_blocks() == o_.blocks && desk_.caches.free_slots() == o_.slots);
  }

 private:
  int pick() const {
    const int n = *rc::gen::inRange(0, static_cast<int>(naive_.size()));
    return std::next(naive_.begin(), n)->first;
  }

  static void lose(Naive& n) {
    n.lost += n.computed;
    n.computed = 0;
  }

  void verify(const StepPlan& plan, int budget) {
    for (const SequenceId id : plan.preempted) lose(naive_.at(static_cast<int>(id.value)));
    RC_ASSERT(plan.tokens() <= o_.cap);
    std::set<int> seen;
    for (const PlannedRow& row : plan.rows) {
      const int id = static_cast<int>(row.sequence.value);
      const Naive& n = naive_.at(id);
      RC_ASSERT(seen.insert(id).second);
      RC_ASSERT(!n.paused && row.n >= 1 && row.first == n.computed);
      RC_ASSERT(row.first + row.n <= n.prompt + n.generated);
      RC_ASSERT(row.samples == (row.first + row.n == n.prompt + n.generated));
      RC_ASSERT(static_cast<int>(desk_.caches.blocks(row.sequence).size()) * 64 >= row.first + row.n);
      RC_ASSERT(desk_.caches.slot(row.sequence).valid());
    }
  }

  void apply(const StepPlan& plan) {
    for (const PlannedRow& row : plan.rows) {
      Naive& n = naive_.at(static_cast<int>(row.sequence.value));
      n.computed += row.n;
      n.work += row.n;
      if (row.samples) ++n.generated;
    }
  }

  void settle() {
    for (const auto& [id, event] : desk_.ended) {
      const Naive& n = naive_.at(id);
      RC_ASSERT(event.finish == FinishReason::length);
      RC_ASSERT(event.generated == n.max_tokens && n.generated == n.max_tokens && event.prompt_tokens == n.prompt);
      RC_ASSERT(n.work == n.prompt + n.max_tokens - 1 + n.lost);  // once, unless it was lost
      naive_.erase(id);
    }
    desk_.ended.clear();
    for (const auto& [id, n] : naive_) RC_ASSERT(n.generated < n.max_tokens);
  }

  DeskOptions o_;
  Desk desk_;
  std::map<int, Naive> naive_;
  int next_ = 1;
};

RC_GTEST_PROP(SchedulerProperty, loses_nothing_and_finishes_everything, ()) {
  const int blocks = *rc::gen::inRange(1, 12);
  Walk walk({.blocks = blocks,
             .slots = *rc::gen::inRange(1, 6),
             .cap = *rc::gen::element(1, 2, 3, 16, 64, 500),
             .rows = *rc::gen::inRange(1, 6),
             .max_model_len = *rc::gen::inRange(2, std::min(blocks * 64, 200) + 1)});
  const auto operations = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 20));
  for (const int operation : operations) {
    if (operation < 5)
      walk.add();
    else if (operation == 5)
      walk.abort();
    else if (operation < 8)
      walk.pause(true);
    else if (operation < 10)
      walk.pause(false);
    else
      walk.step(operation == 10);
  }
  walk.finish();
}

// Whoever waits is served at last, however many short ones keep coming.
RC_GTEST_PROP(SchedulerProperty, nobody_starves_under_a_stream_of_short_prompts, ()) {
  Desk desk({.blocks = 16, .slots = 4, .cap = *rc::gen::element(4, 16, 64), .rows = 4, .max_model_len = 600});
  const int prompt = *rc::gen::inRange(100, 500);
  desk.add({.id = 1, .prompt = prompt, .max_tokens = 20});
  int steps = 0;
  for (int id = 2; !desk.ended.contains(1); ++id, ++steps) {
    RC_ASSERT(steps < 2000);
    desk.add({.id = id, .prompt = *rc::gen::inRange(1, 60), .max_tokens = *rc::gen::inRange(1, 10)});
    desk.step(*rc::gen::inRange(1, 64));
  }
}

}  // namespace
}  // namespace tutti::schedule
