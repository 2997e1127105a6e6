#include "schedule/scheduler.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "schedule/state.h"

namespace tutti::schedule {

std::vector<std::string> SchedulerOptions::validate() const {
  std::vector<std::string> problems;
  const auto at_least = [&](const char* name, int64_t value, int64_t least) {
    if (value < least)
      problems.push_back(std::string(name) + " is " + std::to_string(value) + ", it must be at least " +
                         std::to_string(least));
  };
  at_least("max_num_batched_tokens", max_num_batched_tokens, 1);
  at_least("max_num_seqs", max_num_seqs, 1);
  at_least("max_model_len", max_model_len, 2);
  at_least("min_prompt_tokens", min_prompt_tokens, 0);
  at_least("max_prompt_logits", max_prompt_logits, 1);
  at_least("priority_age_ms", priority_age_ms, 1);
  at_least("max_drafts", max_drafts, 0);
  at_least("snapshot_every", snapshot_every, 0);
  at_least("max_prompt_snapshots", max_prompt_snapshots, 2);
  return problems;
}

struct Scheduler::Impl : State {
  using State::State;
};

Scheduler::Scheduler(SchedulerOptions options, cache::CacheManager& caches)
    : impl_(std::make_unique<Impl>(options, caches)) {
  const std::vector<std::string> problems = options.validate();
  if (!problems.empty()) throw InvariantError("scheduler options: " + problems.front());
  TUTTI_CHECK(cache::CacheManager::blocks_for(options.max_model_len) <= caches.total_blocks());
}

Scheduler::~Scheduler() = default;

namespace {

// A snapshot so few tokens behind another would cost more, in memory to be touched, than it saves.
constexpr int kNearTokens = 10;

// The end of the first message (system and tools), the ends of the last ones, and the last position that a repetition
// can go on from; of those near each other the first, which serves whoever could use the others.
std::vector<int> prompt_snapshots(const Request& request, int most) {
  const int last = static_cast<int>(request.prompt.size()) - 1;
  std::vector<int> all;
  const auto add = [&](int position) {
    if (position > 0 && position <= last && (all.empty() || position > all.back() + kNearTokens))
      all.push_back(position);
  };
  for (const int position : request.boundaries) add(position);
  add(last);
  if (static_cast<int>(all.size()) > most) all.erase(all.begin() + 1, all.end() - (most - 1));
  return all;
}

}  // namespace

void Scheduler::add(std::shared_ptr<const Request> request) {
  TUTTI_CHECK(request != nullptr && request->id.valid() && !impl_->all.contains(request->id));
  TUTTI_CHECK(!request->prompt.empty() && request->max_tokens >= 0);
  TUTTI_CHECK(request->max_tokens > 0 || request->logits_from >= 0);
  TUTTI_CHECK(static_cast<int64_t>(request->prompt.size()) + (request->max_tokens > 0 ? 1 : 0) <=
              impl_->options.max_model_len);
  TUTTI_CHECK(std::is_sorted(request->stop_ids.begin(), request->stop_ids.end()));
  auto sequence = std::make_unique<Sequence>();
  const int64_t room = impl_->options.max_model_len - static_cast<int64_t>(request->prompt.size());
  sequence->tokens.reserve(request->prompt.size() + std::min<int64_t>({request->max_tokens, room, 256}));
  sequence->tokens = request->prompt;
  sequence->arrival = impl_->next_arrival++;
  sequence->queued_ms = impl_->now_ms;
  if (impl_->options.prefix_caching && impl_->caches.keeps_prefixes() && request->use_prefix_cache) {
    sequence->chain = std::make_unique<cache::PrefixChain>(cache::prefix_root(request->cache_salt));
    sequence->chain->extend(sequence->tokens);
    sequence->snapshot_at = prompt_snapshots(*request, impl_->options.max_prompt_snapshots);
  }
  sequence->request = std::move(request);
  Sequence& added = *sequence;
  impl_->all.emplace(added.request->id, std::move(sequence));
  impl_->enqueue(added);
}

std::vector<TokenEvent> Scheduler::abort(SequenceId sequence) {
  Sequence* s = impl_->find(sequence);
  if (s == nullptr) return {};
  return {impl_->finish(*s, {.finish = FinishReason::abort})};
}

std::vector<TokenEvent> Scheduler::fail(SequenceId sequence) {
  Sequence* s = impl_->find(sequence);
  if (s == nullptr) return {};
  return {impl_->finish(*s, {.finish = FinishReason::error})};
}

void Scheduler::set_paused(SequenceId sequence, bool paused) {
  Sequence* s = impl_->find(sequence);
  if (s == nullptr || s->paused == paused) return;
  s->paused = paused;
  impl_->paused += paused ? 1 : -1;
}

void Scheduler::advance_clock(int64_t now_ms) {
  impl_->now_ms = std::max(impl_->now_ms, now_ms);
}

StepPlan Scheduler::plan(int token_budget) {
  StepPlan plan;
  plan.step = ++impl_->step;
  plan_step(*impl_, plan, token_budget);
  return plan;
}

StepPlan Scheduler::plan_alone(SequenceId sequence) {
  StepPlan plan;
  plan.step = ++impl_->step;
  Sequence* s = impl_->find(sequence);
  if (s == nullptr) return plan;
  const bool fresh = s->status != Status::running;
  if (fresh) impl_->restore(*s, plan.copies);
  const int64_t held = static_cast<int64_t>(impl_->caches.blocks(sequence).size());
  const int64_t room = (held + impl_->caches.free_blocks()) * cache::kBlockTokens - s->computed;
  int64_t n = std::min<int64_t>({room, s->uncomputed(), impl_->options.max_num_batched_tokens});
  if (s->logits_done < s->prompt_tokens() && s->request->logits_from >= 0)
    n = std::min<int64_t>(n, impl_->options.max_prompt_logits);
  if (n < 1 || !impl_->caches.reserve(sequence, s->computed + static_cast<int>(n))) {
    if (fresh) impl_->release(*s, false), s->computed = 0;
    plan.copies.clear();
    return plan;
  }
  if (fresh) impl_->admit(*s, s->request->priority);
  plan.rows.push_back(make_row(*s, static_cast<int>(n)));
  plan_snapshots(*impl_, plan);
  return plan;
}

namespace {

// Why the sequence ends with the token that was just appended.
FinishReason reason_to_finish(const Sequence& sequence, TokenId token, int max_model_len) {
  const Request& request = *sequence.request;
  const bool stops = std::binary_search(request.stop_ids.begin(), request.stop_ids.end(), token);
  if (stops && sequence.generated() >= request.min_tokens) return FinishReason::stop;
  if (sequence.generated() >= request.max_tokens) return FinishReason::length;
  if (static_cast<int>(sequence.tokens.size()) >= max_model_len) return FinishReason::length;
  return FinishReason::none;
}

// A row whose guesses are hardly ever right does better without, once it has had so many.
constexpr int kTrialDrafts = 24;
constexpr double kHopeless = 0.15, kHopeRate = 0.15;

void note_drafts(Sequence& sequence, int drafts, int accepted) {
  if (drafts == 0) return;
  sequence.drafts_accepted += accepted;
  sequence.drafts_rejected += drafts - accepted;
  sequence.hope += kHopeRate * (static_cast<double>(accepted) / drafts - sequence.hope);
  const bool tried = sequence.drafts_accepted + sequence.drafts_rejected >= kTrialDrafts;
  if (tried && sequence.hope < kHopeless) sequence.follow = false;
}

// Appends what was sampled, up to the token that ends the sequence. One event per token; the last says whether it ends.
std::vector<TokenEvent> append_tokens(const State& state, Sequence& sequence, const SampledToken& sampled) {
  std::vector<TokenEvent> events;
  const auto append = [&](TokenId token) {
    sequence.tokens.push_back(token);
    TokenEvent event{.sequence = sampled.sequence, .token = token};
    event.finish = reason_to_finish(sequence, token, state.options.max_model_len);
    if (event.finish == FinishReason::stop) event.stop_token = token;
    event.prompt_tokens = sequence.prompt_tokens();
    event.generated = sequence.generated();
    event.cached_tokens = sequence.cached;
    events.push_back(event);
  };
  append(sampled.token);
  for (const TokenId token : sampled.after)
    if (events.back().finish == FinishReason::none) append(token);
  if (sequence.chain != nullptr) sequence.chain->extend(sequence.tokens);
  return events;
}

void commit_row(State& state, const PlannedRow& row, Sequence& sequence, const SampledToken& sampled,
                std::vector<TokenEvent>& events) {
  if (sampled.failed) {
    events.push_back(state.finish(sequence, {.finish = FinishReason::error}));
    return;
  }
  std::vector<TokenEvent> appended;
  if (sampled.token >= 0) appended = append_tokens(state, sequence, sampled);
  const int drafts = static_cast<int>(row.drafts.size()), kept = static_cast<int>(appended.size());
  sequence.computed = row.first + (drafts > 0 ? kept : row.n);
  if (drafts > 0) state.caches.accept_drafts(row.sequence, kept);
  note_drafts(sequence, drafts, kept - 1);
  for (TokenEvent& event : appended) {
    event.drafts_accepted = sequence.drafts_accepted;
    event.drafts_rejected = sequence.drafts_rejected;
  }
  sequence.drafts.clear();
  sequence.logits_done = std::max(sequence.logits_done, std::min(sequence.computed, sequence.prompt_tokens()));
  if (sequence.chain != nullptr) state.caches.commit(row.sequence, prefix_of(sequence), sequence.computed);

  if (appended.empty() && sequence.request->max_tokens == 0 && sequence.uncomputed() == 0)
    appended.push_back({.sequence = sampled.sequence, .finish = FinishReason::length});
  if (!appended.empty() && appended.back().finish != FinishReason::none)
    appended.back() = state.finish(sequence, appended.back());
  events.insert(events.end(), appended.begin(), appended.end());
}

}  // namespace

std::vector<TokenEvent> Scheduler::commit(const StepPlan& plan, std::span<const SampledToken> sampled) {
  TUTTI_CHECK(sampled.size() == plan.rows.size());
  std::vector<TokenEvent> events;
  events.reserve(plan.rows.size());
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlannedRow& row = plan.rows[r];
    TUTTI_CHECK(sampled[r].sequence == row.sequence);
    Sequence* sequence = impl_->find(row.sequence);
    if (sequence == nullptr) continue;  // ended since it was planned
    TUTTI_CHECK(sequence->status == Status::running && sequence->computed == row.first);
    TUTTI_CHECK(sampled[r].failed || row.samples == (sampled[r].token >= 0));
    sequence->last_served = ++impl_->served;
    commit_row(*impl_, row, *sequence, sampled[r], events);
  }
  return events;
}

void Scheduler::limit_drafts(int drafts) {
  impl_->draft_limit = drafts;
}

void Scheduler::set_drafts(SequenceId sequence, std::vector<TokenId> drafts) {
  Sequence* s = impl_->find(sequence);
  if (s != nullptr && s->status == Status::running) s->drafts = std::move(drafts);
}

void Scheduler::roll_back(const StepPlan& plan, bool all) {
  if (all) {
    while (!impl_->running.empty()) impl_->send_back(*impl_->running.back(), false);
    impl_->caches.forget();
    return;
  }
  for (const PlannedRow& row : plan.rows) {
    Sequence* sequence = impl_->find(row.sequence);
    if (sequence != nullptr && sequence->status == Status::running) impl_->send_back(*sequence, false);
  }
}

const Sequence* Scheduler::find(SequenceId sequence) const {
  return impl_->find(sequence);
}
int Scheduler::running() const {
  return static_cast<int>(impl_->running.size());
}
int Scheduler::waiting() const {
  return static_cast<int>(impl_->all.size() - impl_->running.size());
}
int Scheduler::decoding() const {
  return static_cast<int>(
      std::count_if(impl_->running.begin(), impl_->running.end(), [](auto* s) { return s->decodes(); }));
}
bool Scheduler::has_work() const {
  return impl_->all.size() > static_cast<size_t>(impl_->paused);
}
int64_t Scheduler::preemptions() const {
  return impl_->preemptions;
}

void Scheduler::check() const {
  const State& state = *impl_;
  size_t queued = 0;
  int paused = 0;
  std::set<BlockId> in_use;  // rows may share blocks
  for (const auto& [priority, queue] : state.waiting) {
    TUTTI_CHECK(!queue.empty());
    for (const auto& [arrival, s] : queue) {
      ++queued;
      TUTTI_CHECK(s->arrival == arrival && s->request->priority == priority);
      TUTTI_CHECK(s->status == Status::waiting || s->status == Status::preempted);
      TUTTI_CHECK(s->computed == 0 && !state.caches.holds(s->request->id));
    }
  }
  for (const Sequence* s : state.running) {
    TUTTI_CHECK(s->status == Status::running && state.caches.holds(s->request->id));
    const int held = static_cast<int>(state.caches.blocks(s->request->id).size());
    const auto blocks = state.caches.blocks(s->request->id);
    in_use.insert(blocks.begin(), blocks.end());
    TUTTI_CHECK(cache::CacheManager::blocks_for(s->computed) <= held);
    TUTTI_CHECK(held <= cache::CacheManager::blocks_for(static_cast<int>(s->tokens.size()) + state.options.max_drafts));
  }
  for (const auto& [id, s] : state.all) {
    TUTTI_CHECK(s->request->id == id && state.find(id) == s.get());
    TUTTI_CHECK(s->computed >= 0 && s->computed <= static_cast<int>(s->tokens.size()));
    TUTTI_CHECK(static_cast<int>(s->tokens.size()) <
                state.options.max_model_len + (s->request->max_tokens == 0 ? 1 : 0));
    paused += s->paused ? 1 : 0;
  }
  TUTTI_CHECK(queued + state.running.size() == state.all.size() && paused == state.paused);
  TUTTI_CHECK(static_cast<int>(state.running.size()) <= state.options.max_num_seqs);
  TUTTI_CHECK(
      std::is_sorted(state.running.begin(), state.running.end(), [](auto* a, auto* b) { return senior(*a, *b); }));
  TUTTI_CHECK(static_cast<int>(in_use.size()) + state.caches.free_blocks() == state.caches.total_blocks());
  state.caches.check();
}

}  // namespace tutti::schedule
