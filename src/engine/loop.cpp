#include "engine/loop.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace tutti::engine {

using schedule::FinishReason;
using schedule::PlannedRow;
using schedule::StepPlan;
using schedule::TokenEvent;

namespace {

// What the client is told. The reasons in detail go to the log.
const char* const kInternal = "The model failed on this request and failed again when it was run alone.";
const char* const kInternalLoop = "The engine failed while this request was running.";
const char* const kNumerical = "The model produced numbers for this request that are not finite.";
const char* const kGrammar = "No token is allowed at this place by the constraints of the request.";
constexpr int kProgressLogs = 5;  // of so many tellings of a prompt's progress, one goes to the log
const char* const kDraining = "The server is shutting down.";

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Loop::Loop(const EngineOptions& options, Parts parts)
    : options_(options),
      parts_(std::move(parts)),
      metrics_(*parts_.metrics),
      runner_(*parts_.runner),
      scheduler_(std::make_unique<schedule::Scheduler>(options.schedule, *parts_.caches)),
      pace_(options.step_budget),
      draft_pace_(options.schedule.max_drafts) {
  metrics_.kv_blocks_total = parts_.caches->total_blocks();
  if (parts_.disk == nullptr) return;
  metrics_.disk = &parts_.disk->counts();
  disk_.emplace(*parts_.disk, *parts_.caches, runner_);
  parts_.disk->on_loaded([inbox = std::weak_ptr(parts_.inbox)] {
    if (const auto alive = inbox.lock()) alive->wake();
  });
}

Loop::~Loop() = default;

void Loop::run() {
  for (bool running = true; running;) {
    try {
      running = drain();
      if (running && scheduler_->has_work()) step();
    } catch (const std::exception& e) {
      start_anew(e.what());
    } catch (...) {
      start_anew("an exception of unknown type");
    }
    observe_state();
  }
  fail_all({"server_draining", kDraining});
  keep_caches();
  observe_state();
}

void Loop::keep_caches() {
  if (!disk_) return;
  try {
    disk_->keep_all();
  } catch (const std::exception& e) {
    log::error("prefix cache on disk: {}; not all of it is kept", e.what());
  }
}

// ---- 1 drain
// ---------------------------------------------------------------------------------------------------------------

bool Loop::drain() {
  const bool running = parts_.inbox->receive(messages_, !scheduler_->has_work());
  for (Message& message : messages_) {
    try {
      handle(message);
    } catch (const std::exception& e) {
      start_anew(e.what());
    }
  }
  if (disk_)
    for (const SequenceId id : disk_->install()) scheduler_->set_paused(id, false);
  pause_full_streams();
  return running;
}

void Loop::handle(Message& message) {
  if (auto* submit = std::get_if<SubmitMessage>(&message)) {
    accept(*submit);
  } else if (const auto* ended = std::get_if<EndMessage>(&message)) {
    for (int i = 0; i < ended->choices; ++i) {
      const SequenceId id{ended->first_sequence + i};
      for (TokenEvent event : scheduler_->abort(id)) {
        event.finish = ended->reason;
        if (Row* row = find(id)) end(*row, event, {}, {});
      }
    }
  } else {
    fail_all({"server_draining", kDraining});
  }
}

void Loop::accept(SubmitMessage& message) {
  const std::weak_ptr<Inbox> inbox = parts_.inbox;
  message.submission.stream->set_on_room([inbox] {
    if (const auto alive = inbox.lock()) alive->wake();
  });
  std::sort(message.submission.stop_ids.begin(), message.submission.stop_ids.end());
  for (int i = 0; i < message.submission.choices; ++i) {
    const SequenceId id{message.first_sequence + i};
    rows_[id] = {.id = id,
                 .stream = message.submission.stream,
                 .request_id = message.submission.request_id,
                 .choice = message.submission.first_choice + i,
                 .prompt_tokens = static_cast<int>(message.submission.prompt.size()),
                 .queued = message.queued};
    try {
      accept_choice(message, i);
    } catch (const std::exception& e) {
      log::error("request {}: not accepted: {}", message.submission.request_id, e.what());
      fail(id, {"internal_error", kInternalLoop});
    }
  }
}

void Loop::accept_choice(const SubmitMessage& message, int choice) {
  const Submission& s = message.submission;
  auto request = std::make_shared<schedule::Request>();
  request->id = SequenceId{message.first_sequence + choice};
  request->prompt = s.prompt;
  request->max_tokens = s.max_tokens;
  request->min_tokens = s.sampling.min_tokens;
  request->stop_ids = s.stop_ids;
  request->priority = s.priority;
  request->max_drafts = s.max_drafts;
  request->use_prefix_cache = s.use_prefix_cache;
  request->cache_salt = s.cache_salt;
  request->boundaries = s.boundaries;
  request->logits_from = s.sampling.prompt_logprobs >= 0 ? 0 : -1;
  const SequenceId id = request->id;
  const bool may_hit = request->logits_from < 0;
  scheduler_->add(std::move(request));
  if (disk_ && may_hit) fetch_prefix(*scheduler_->find(id));
  // Counted from the submission's own first choice: its draws don't depend on what else the HTTP request holds.
  runner_.add(id, s.sampling, choice, s.prompt);
}

// Until it has been read, the sequence doesn't run.
void Loop::fetch_prefix(const schedule::Sequence& sequence) {
  if (sequence.chain == nullptr) return;
  const SequenceId id = sequence.request->id;
  if (disk_->fetch(id, {*sequence.chain, sequence.tokens}, sequence.prompt_tokens() - 1))
    scheduler_->set_paused(id, true);
}

// ---- 2 plan
// ----------------------------------------------------------------------------------------------------------------

StepPlan Loop::plan() {
  scheduler_->advance_clock(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_).count());
  const int decoding = scheduler_->decoding();
  const bool prompts = scheduler_->running() > decoding || scheduler_->waiting() > 0;
  if (options_.adapt_drafts) scheduler_->limit_drafts(draft_pace_.choose(decoding, prompts));
  return scheduler_->plan(pace_.token_budget(decoding));
}

void Loop::pause_full_streams() {
  for (Row* row : started_) {
    const bool full = row->stream->full();
    if (full == row->paused) continue;
    row->paused = full;
    scheduler_->set_paused(row->id, full);
  }
}

void Loop::announce(const StepPlan& plan) {
  for (const PlannedRow& planned : plan.rows) {
    Row* row = find(planned.sequence);
    if (row == nullptr || row->started) continue;
    row->started = true;
    row->planned = row->told = row->logged = Clock::now();
    started_.push_back(row);
    metrics_.queue_time.observe(seconds_between(row->queued, row->planned));
    const schedule::Sequence& sequence = *scheduler_->find(row->id);
    if (sequence.chain != nullptr) metrics_.prefix_cache_queries += row->prompt_tokens;
    metrics_.prefix_cache_hits += sequence.cached;
    publish(*row, {.started = true});
  }
}

// ---- the step and its error boundary
// -----------------------------------------------------------------------------------------

void Loop::step() {
  const StepPlan planned = plan();
  TUTTI_CHECK(!planned.empty());  // there is work, and the most senior row can always go on
  announce(planned);
  if (!attempt(planned)) rerun_alone(planned);
}

bool Loop::attempt(const StepPlan& plan) {
  const Clock::time_point begin = Clock::now();
  std::vector<run::RowResult> results;
  try {
    if (disk_) disk_->spill();
    results = runner_.run(plan, *scheduler_, *parts_.caches);
  } catch (const std::exception& e) {
    fault_ = e.what();
    return false;
  } catch (...) {
    fault_ = "an exception of unknown type";
    return false;
  }
  commit(plan, results, seconds_between(begin, Clock::now()));
  return true;
}

void Loop::rerun_alone(const StepPlan& failed) {
  log::error("step {}: {} rows failed: {}; each is run again alone", failed.step, failed.rows.size(), fault_);
  scheduler_->roll_back(failed, runner_.recover());
  for (const PlannedRow& row : failed.rows) {
    // Up to where the failed step would have brought it: the fault may sit in its last chunk.
    for (;;) {
      const schedule::Sequence* sequence = scheduler_->find(row.sequence);
      if (sequence == nullptr || sequence->computed >= row.first + row.n) break;
      const StepPlan alone = scheduler_->plan_alone(row.sequence);
      if (alone.empty()) break;  // no room: it goes on in a later step
      if (attempt(alone)) continue;
      scheduler_->roll_back(alone, runner_.recover());
      const Row* faulty = find(row.sequence);
      log::error("request {}: failed again alone: {}", faulty != nullptr ? faulty->request_id : "?", fault_);
      fail(row.sequence, {"internal_error", kInternal});
    }
  }
}

void Loop::start_anew(const std::string& what) {
  log::error("engine: {}; all that was running is ended", what);
  try {
    // Nothing that the scheduler says counts any more: caches and rows are given back by hand.
    preemptions_before_ += scheduler_->preemptions();
    while (!rows_.empty()) {
      Row& row = rows_.begin()->second;
      parts_.caches->release(row.id);
      end(row, last_of(row), {}, {"internal_error", kInternalLoop});
    }
    parts_.caches->forget();
    scheduler_ = std::make_unique<schedule::Scheduler>(options_.schedule, *parts_.caches);
    runner_.recover();
  } catch (const std::exception& e) {
    log::error("engine: while ending what was running: {}", e.what());
  } catch (...) {
    log::error("engine: while ending what was running: an exception of unknown type");
  }
}

TokenEvent Loop::last_of(const Row& row) {
  return {.sequence = row.id,
          .finish = FinishReason::error,
          .prompt_tokens = row.prompt_tokens,
          .generated = row.generated};
}

// ---- 6 commit, 7 publish
// -----------------------------------------------------------------------------------------------------

void Loop::commit(const StepPlan& plan, std::vector<run::RowResult>& results, double seconds) {
  sampled_.clear();
  for (const run::RowResult& result : results) sampled_.push_back(result.token);
  int prompt_tokens = 0;
  for (const PlannedRow& row : plan.rows) prompt_tokens += row.n > 1 && row.drafts.empty() ? row.n : 0;
  pace_.observe(plan.tokens() - prompt_tokens, prompt_tokens, seconds);
  metrics_.iteration_tokens.observe(plan.tokens());
  ++metrics_.engine_steps;

  const std::vector<TokenEvent> events = scheduler_->commit(plan, sampled_);
  if (prompt_tokens == 0) observe_guesses(plan, static_cast<int>(events.size()), seconds);
  parts_.inbox->progressed();
  size_t next = 0;  // events come in the order of the rows
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const size_t begin = next;
    while (next < events.size() && events[next].sequence == plan.rows[r].sequence) ++next;
    count_drafts(plan.rows[r], next - begin);
    commit_row(plan.rows[r], results[r], std::span(events).subspan(begin, next - begin));
    scheduler_->set_drafts(plan.rows[r].sequence, std::move(results[r].drafts));
  }
}

void Loop::observe_guesses(const StepPlan& plan, int tokens, double seconds) {
  const auto guessed = std::ranges::count_if(plan.rows, [](const PlannedRow& row) { return !row.drafts.empty(); });
  draft_pace_.observe(static_cast<int>(plan.rows.size()), static_cast<int>(guessed), tokens, seconds);
}

void Loop::count_drafts(const PlannedRow& row, size_t tokens) {
  if (row.drafts.empty()) return;
  const size_t accepted = std::max<size_t>(tokens, 1) - 1;
  ++metrics_.spec_drafts;
  metrics_.spec_draft_tokens += static_cast<int64_t>(row.drafts.size());
  metrics_.spec_accepted_tokens += static_cast<int64_t>(accepted);
  for (size_t i = 0; i < std::min(accepted, metrics_.spec_accepted_at.size()); ++i) ++metrics_.spec_accepted_at[i];
}

// events: one per token, or the end without one.
void Loop::commit_row(const PlannedRow& planned, run::RowResult& result, std::span<const TokenEvent> events) {
  Row* row = find(planned.sequence);
  if (row == nullptr) return;
  const int computed = std::min(planned.first + planned.n, row->prompt_tokens);
  metrics_.prompt_tokens += std::max(0, computed - row->prompt_counted);
  row->prompt_counted = std::max(row->prompt_counted, computed);
  if (events.empty() && !result.prompt_logprobs.empty())
    publish(*row, {.prompt_logprobs = std::move(result.prompt_logprobs)});
  if (events.empty() && row->generated == 0) tell_progress(*row, computed);
  for (size_t i = 0; i < events.size(); ++i) {
    const TokenEvent& event = events[i];
    Event out{.prompt_logprobs = std::move(result.prompt_logprobs)};
    result.prompt_logprobs.clear();
    if (i < result.logprobs.size()) out.logprobs = std::move(result.logprobs[i]);
    if (event.token >= 0) {
      out.token = event.token;
      observe_token(*row, Clock::now());
    }
    if (event.finish == FinishReason::none) {
      out.prompt_tokens = event.prompt_tokens;
      out.generated = event.generated;
      out.cached_tokens = event.cached_tokens;
      out.drafts_accepted = event.drafts_accepted;
      out.drafts_rejected = event.drafts_rejected;
      publish(*row, std::move(out));
      continue;
    }
    RowFault fault;
    if (event.finish == FinishReason::error)
      fault = result.fault == sample::Fault::no_legal_token ? RowFault{"grammar_error", kGrammar}
                                                            : RowFault{"numerical_error", kNumerical};
    return end(*row, event, std::move(out), fault);
  }
}

// So that a long prompt doesn't look like a hang.
void Loop::tell_progress(Row& row, int computed) {
  const Clock::time_point now = Clock::now();
  if (now - row.told < options_.progress_every) return;
  row.told = now;
  publish(row, {.prompt_computed = computed});
  if (now - row.logged < kProgressLogs * options_.progress_every) return;
  row.logged = now;
  log::info("request {}: {} of {} prompt tokens after {:.1f} s", row.request_id, computed, row.prompt_tokens,
            seconds_between(row.planned, now));
}

void Loop::publish(Row& row, Event event) {
  event.choice = row.choice;
  try {
    row.stream->push(std::move(event));
  } catch (const std::exception& e) {  // of the reader's notify
    log::error("request {}: a reader's notification failed: {}", row.request_id, e.what());
  }
}

void Loop::end(Row& row, const TokenEvent& event, Event last, const RowFault& fault) {
  last.finish = event.finish;
  last.stop_token = event.stop_token;
  last.prompt_tokens = event.prompt_tokens;
  last.generated = event.generated;
  last.cached_tokens = event.cached_tokens;
  last.drafts_accepted = event.drafts_accepted;
  last.drafts_rejected = event.drafts_rejected;
  last.error_code = fault.code;
  last.error_message = fault.message;
  observe_end(row, event.finish);
  const SequenceId id = row.id;
  runner_.remove(id);
  std::erase(started_, &row);
  publish(row, std::move(last));
  rows_.erase(id);
  parts_.inbox->ended(1);
}

void Loop::fail(SequenceId id, const RowFault& fault) {
  Row* row = find(id);
  if (row == nullptr) return;
  const std::vector<TokenEvent> events = scheduler_->fail(id);
  end(*row, events.empty() ? last_of(*row) : events.front(), {}, fault);  // empty: it was refused and never ran
}

void Loop::fail_all(const RowFault& fault) {
  std::vector<SequenceId> ids;
  ids.reserve(rows_.size());
  for (const auto& [id, row] : rows_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const SequenceId id : ids) fail(id, fault);
}

Loop::Row* Loop::find(SequenceId id) {
  const auto it = rows_.find(id);
  return it == rows_.end() ? nullptr : &it->second;
}

// ---- metrics
// -----------------------------------------------------------------------------------------------------------------

void Loop::observe_token(Row& row, Clock::time_point now) {
  ++metrics_.generation_tokens;
  ++row.generated;
  if (row.generated == 1) {
    metrics_.time_to_first_token.observe(seconds_between(row.queued, now));
    metrics_.prefill_time.observe(seconds_between(row.planned, now));
    row.first_token = now;
  } else {
    metrics_.inter_token_latency.observe(seconds_between(row.last_token, now));
  }
  row.last_token = now;
}

void Loop::observe_end(const Row& row, FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      ++metrics_.finished_stop;
      break;
    case FinishReason::length:
      ++metrics_.finished_length;
      break;
    case FinishReason::abort:
      ++metrics_.finished_abort;
      break;
    default:
      ++metrics_.finished_error;
      break;
  }
  metrics_.e2e_latency.observe(seconds_between(row.queued, Clock::now()));
  metrics_.request_prompt_tokens.observe(row.prompt_tokens);
  metrics_.request_generation_tokens.observe(row.generated);
  if (row.generated > 0) metrics_.decode_time.observe(seconds_between(row.first_token, row.last_token));
}

void Loop::observe_state() {
  const int running = scheduler_->running(), waiting = scheduler_->waiting();
  parts_.gauges->running.store(running, std::memory_order_relaxed);
  parts_.gauges->waiting.store(waiting, std::memory_order_relaxed);
  metrics_.running = running;
  metrics_.waiting = waiting;
  metrics_.kv_blocks_used = parts_.caches->total_blocks() - parts_.caches->free_blocks();
  metrics_.cached_tokens = int64_t{parts_.caches->cached_blocks()} * cache::kBlockTokens;
  metrics_.snapshots = parts_.caches->snapshots();
  metrics_.preemptions = preemptions_before_ + scheduler_->preemptions();
}

}  // namespace tutti::engine
