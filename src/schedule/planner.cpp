// Who runs in a step. Rows are reserved one after another; a senior row may take the blocks of a junior that is in the
// plan already, which then leaves it. So the plan that comes out is reserved in full.
#include <algorithm>

#include "base/error.h"
#include "schedule/share.h"
#include "schedule/state.h"

namespace tutti::schedule {

namespace {

struct Candidate {
  Sequence* sequence = nullptr;
  int64_t level = 0;  // effective priority
  int cached = 0;     // tokens that it would find in the prefix cache
};

// A prefix that is being computed is worth waiting for when it saves so many tokens.
constexpr int kJoinTokens = 32;

class Planner {
 public:
  Planner(State& state, StepPlan& plan, int token_budget)
      : state_(state), plan_(plan), token_budget_(token_budget), logits_left_(state.options.max_prompt_logits) {}

  void run() {
    plan_decoding();
    plan_prompts();
    if (plan_.rows.empty()) plan_most_senior();
    // Nothing can go on but a waiting sequence, and paused rows hold what it needs.
    while (plan_.rows.empty() && active_waiting() && preempt_paused()) plan_prompts();
    plan_snapshots(state_, plan_);
    plan_next_drafts();
  }

 private:
  int cap() const { return state_.options.max_num_batched_tokens; }

  bool active_waiting() const {
    for (const auto& [priority, queue] : state_.waiting)
      for (const auto& [arrival, sequence] : queue)
        if (!sequence->paused) return true;
    return false;
  }

  void preempt(Sequence& victim) {
    const SequenceId id = victim.request->id;
    std::erase_if(plan_.rows, [&](const PlannedRow& row) { return row.sequence == id; });
    plan_.preempted.push_back(id);
    state_.send_back(victim, true);
    ++victim.preemptions;
    ++state_.preemptions;
  }

  bool preempt_paused() {
    for (auto it = state_.running.rbegin(); it != state_.running.rend(); ++it) {
      if (!(*it)->paused) continue;
      preempt(**it);
      return true;
    }
    return false;
  }

  // Takes the caches of one row for `row`: a paused one, else the youngest if that is not `row` itself.
  bool preempt_for(const Sequence& row) {
    if (preempt_paused()) return true;
    Sequence& youngest = *state_.running.back();
    if (&youngest == &row) return false;
    preempt(youngest);
    return true;
  }

  void plan_decoding() {
    std::vector<Sequence*> rows;
    bool prompts = state_.caches.free_slots() > 0 && state_.caches.free_blocks() > 0 &&
                   static_cast<int>(state_.running.size()) < state_.options.max_num_seqs && active_waiting();
    for (Sequence* row : state_.running) {
      if (row->paused) continue;
      if (row->decodes())
        rows.push_back(row);
      else
        prompts = true;
    }
    int room = cap();
    if (static_cast<int>(rows.size()) >= cap()) {
      if (prompts && state_.step % 2 == 1) room -= std::clamp(state_.options.min_prompt_tokens, 1, (cap() + 1) / 2);
      std::sort(rows.begin(), rows.end(), [](const Sequence* a, const Sequence* b) {
        return a->last_served != b->last_served ? a->last_served < b->last_served : a->arrival < b->arrival;
      });
    }
    for (Sequence* row : rows) {
      const int left = room - plan_.tokens();  // a preempted row has left the plan
      if (left <= 0) break;
      if (row->status != Status::running) continue;  // preempted for a row before it
      if (plan_with_drafts(*row, left)) continue;
      bool reserved;
      while (!(reserved = state_.caches.reserve(row->request->id, row->computed + 1)) && preempt_for(*row)) {
      }
      if (reserved) plan_.rows.push_back(make_row(*row, 1));
    }
  }

  // Only as long as that costs nobody anything: one token for every other row comes first.
  bool plan_with_drafts(Sequence& row, int room) {
    int drafts = usable_drafts(state_, row);
    if (drafts == 0 || static_cast<int>(state_.running.size()) + drafts > room) return false;
    if (!state_.caches.reserve(row.request->id, row.computed + 1 + drafts)) return false;
    if (!state_.caches.plan_drafts(row.request->id, drafts)) return false;
    plan_.rows.push_back(make_row(row, 1));
    add_drafts(state_, plan_.rows.back(), drafts);
    return true;
  }

  void plan_prompts() {
    const std::vector<Candidate> candidates = gather();
    if (candidates.empty()) return;
    std::vector<PromptShare> shares;
    for (const Candidate& c : candidates)
      shares.push_back({.want = c.sequence->uncomputed() - c.cached, .level = c.level});
    const int planned = plan_.tokens();
    const int wanted = std::max({token_budget_ - planned, state_.options.min_prompt_tokens, 1});
    share_tokens(shares, std::min(wanted, cap() - planned));
    for (size_t i = 0; i < candidates.size(); ++i)
      if (shares[i].given > 0) give(candidates[i], shares[i].given);
  }

  // How many guesses the rows' next step is to verify: the more, the better those before were.
  void plan_next_drafts() {
    plan_.guessing = std::min(state_.options.max_drafts, state_.draft_limit) > 0;
    for (PlannedRow& row : plan_.rows) {
      const Sequence& sequence = *state_.find(row.sequence);
      const int allowed = std::min(state_.options.max_drafts, sequence.request->max_drafts);
      row.follow = row.follow && allowed > 0;
      if (!row.follow || !row.samples) continue;
      const int hopeful = sequence.hope > 0.6 ? allowed : sequence.hope > 0.35 ? 2 : 1;
      row.drafts_ahead = std::min({hopeful, allowed, state_.draft_limit});
    }
  }

  // No row got both tokens and blocks. The most senior can take the blocks of all others.
  void plan_most_senior() {
    for (Sequence* row : state_.running) {
      if (row->paused) continue;
      give({row, row->rank}, std::min(row->uncomputed(), cap()));
      return;
    }
  }

  // All prompts that could run, by priority and age: the running ones and as many of the waiting as there are places.
  // One that waits for memory keeps those behind it from taking it away.
  std::vector<Candidate> gather() const {
    const int64_t best = state_.best_priority();
    std::vector<Candidate> waiting, all;
    const int places =
        std::min(state_.options.max_num_seqs - static_cast<int>(state_.running.size()), state_.caches.free_slots());
    for (const auto& [priority, queue] : state_.waiting) {
      if (places == 0) break;
      int taken = 0;
      for (const auto& [arrival, sequence] : queue) {
        if (taken == places) break;
        if (sequence->paused) continue;
        const int cached = state_.cached_prefix(*sequence);
        if (another_computes_more(*sequence, cached, waiting)) continue;
        waiting.push_back({sequence, state_.effective_priority(*sequence, best), cached});
        ++taken;
      }
    }
    sort(waiting);
    int free = state_.caches.free_blocks();
    for (const Candidate& c : waiting) {
      free -= blocks_to_admit(*c.sequence);
      if (free < 0 || static_cast<int>(all.size()) >= places) break;
      all.push_back(c);
    }
    for (Sequence* row : state_.running)
      if (!row->paused && !row->decodes()) all.push_back({row, state_.effective_priority(*row, best)});
    sort(all);
    return all;
  }

  // Will a row that runs, or is about to, leave more of this prompt in the cache than is there now?
  bool another_computes_more(const Sequence& sequence, int cached, const std::vector<Candidate>& before) const {
    if (sequence.chain == nullptr || sequence.request->logits_from >= 0) return false;
    const auto computes_more = [&](const Sequence& other, int computed) {
      if (other.chain == nullptr || other.paused || computed >= other.prompt_tokens()) return false;
      int upto = std::min(common_prefix(sequence, other), static_cast<int>(sequence.tokens.size()) - 1);
      if (upto < cached + kJoinTokens) return false;
      if (!state_.caches.stateful()) return upto / cache::kBlockTokens * cache::kBlockTokens >= cached + kJoinTokens;
      const auto coming = snapshot_positions(other, state_.options.snapshot_every, computed, upto);
      return !coming.empty() && coming.back() >= cached + kJoinTokens;
    };
    return std::ranges::any_of(state_.running,
                               [&](const Sequence* row) { return computes_more(*row, row->computed); }) ||
           std::ranges::any_of(before, [&](const Candidate& c) { return computes_more(*c.sequence, c.cached); });
  }

  static void sort(std::vector<Candidate>& candidates) {
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.level != b.level ? a.level < b.level : a.sequence->arrival < b.sequence->arrival;
    });
  }

  // A new sequence needs room for its next step; one that lost its caches comes back when all of it fits, or it would
  // be recomputed in vain again and again.
  static int blocks_to_admit(const Sequence& sequence) {
    if (sequence.status == Status::waiting) return 1;
    return cache::CacheManager::blocks_for(static_cast<int>(sequence.tokens.size()));
  }

  void give(const Candidate& candidate, int n) {
    Sequence& sequence = *candidate.sequence;
    const SequenceId id = sequence.request->id;
    const bool fresh = sequence.status != Status::running;
    if (fresh && (state_.caches.free_slots() == 0 || blocks_to_admit(sequence) > state_.caches.free_blocks())) return;
    if (fresh) state_.restore(sequence, plan_.copies);
    n = cut_to_logits(sequence, std::min(n, sequence.uncomputed()));
    int room = room_for(sequence);
    while (room == 0 && !fresh && preempt_for(sequence)) room = room_for(sequence);
    n = std::min(n, room);
    if (n == 0) {
      if (fresh) state_.release(sequence, false), sequence.computed = 0;
      return;
    }
    TUTTI_CHECK(state_.caches.reserve(id, sequence.computed + n));
    if (fresh) state_.admit(sequence, candidate.level);
    plan_.rows.push_back(make_row(sequence, n));
  }

  // Tokens of the sequence that fit without taking anything from others.
  int room_for(const Sequence& sequence) const {
    const int64_t held = static_cast<int64_t>(state_.caches.blocks(sequence.request->id).size());
    const int64_t room = (held + state_.caches.free_blocks()) * cache::kBlockTokens - sequence.computed;
    return static_cast<int>(std::min<int64_t>(room, sequence.uncomputed()));
  }

  int cut_to_logits(const Sequence& sequence, int n) {
    const int logits = make_row(sequence, n).logits;
    if (logits <= 1) return n;
    const int without = n - logits;  // tokens before the first that wants logits
    const int granted = std::min(logits, logits_left_);
    logits_left_ -= granted;
    return without + granted;
  }

  State& state_;
  StepPlan& plan_;
  const int token_budget_;
  int logits_left_;
};

}  // namespace

void plan_snapshots(State& state, StepPlan& plan) {
  for (PlannedRow& row : plan.rows) {
    const Sequence& sequence = *state.find(row.sequence);
    if (sequence.chain == nullptr) continue;
    const int end = row.first + row.n - static_cast<int>(row.drafts.size());
    for (const int position : snapshot_positions(sequence, state.options.snapshot_every, row.first, end)) {
      const SlotId slot = state.caches.plan_snapshot(row.sequence, prefix_of(sequence), position);
      if (slot.valid()) row.emits.push_back({position, slot});
    }
    std::ranges::stable_sort(row.emits, {}, &PlannedRow::Emit::position);
  }
}

void plan_step(State& state, StepPlan& plan, int token_budget) {
  Planner(state, plan, token_budget).run();
}

}  // namespace tutti::schedule
