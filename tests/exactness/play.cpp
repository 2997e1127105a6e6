#include "exactness/play.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cache/disk_tier.h"
#include "engine/engine.h"
#include "exactness/subject.h"
#include "kernels/table.h"
#include "run/runner.h"
#include "sample/brackets.h"

namespace tutti::exactness {

namespace {

using schedule::FinishReason;

// Calls `before` on the engine thread at the start of each step.
class Stepping final : public model::Model {
 public:
  Stepping(std::shared_ptr<const model::Model> inner, std::function<void()> before)
      : inner_(std::move(inner)), before_(std::move(before)) {}
  const model::ModelInfo& info() const override { return inner_->info(); }
  cache::CacheSpecs cache_specs() const override { return inner_->cache_specs(); }
  model::ForwardOutput forward(const ops::Step& step, cache::CacheStore& caches) const override {
    before_();
    return inner_->forward(step, caches);
  }
  model::ForwardOutput draft(const ops::Step& step, const ops::mx::array& hidden,
                             cache::CacheStore& caches) const override {
    return inner_->draft(step, hidden, caches);
  }

 private:
  const std::shared_ptr<const model::Model> inner_;
  const std::function<void()> before_;
};

// One engine's life: jobs are sent, aborted and stopped at steps, from the engine thread itself, so that the same
// schedule makes the same steps.
class Life {
 public:
  Life(const Setting& setting, std::vector<const Job*> jobs, const std::filesystem::path& disk)
      : setting_(setting), jobs_(std::move(jobs)), states_(jobs_.size()), pool_(setting.threads) {
    const Subject& model = subject(setting.subject);
    engine::EngineOptions options;
    options.schedule = {.max_num_batched_tokens = setting.cap,
                        .max_num_seqs = setting.rows,
                        .max_model_len = setting.max_model_len,
                        .prefix_caching = setting.prefix_caching,
                        .max_drafts = setting.drafts,
                        .snapshot_every = setting.snapshot_every};
    options.adapt_drafts = setting.adapt_drafts;
    options.max_queue = 1 << 20;
    options.step_budget = std::chrono::hours(1);  // the cap decides, not the clock
    std::unique_ptr<cache::DiskTier> tier;
    if (!disk.empty()) {
      tier = std::make_unique<cache::DiskTier>(
          cache::DiskTierOptions{.folder = disk, .max_bytes = setting.disk_bytes, .identity = {1}});
    }
    tier_ = tier.get();
    auto caches = std::make_unique<cache::CacheManager>(cache::ManagerOptions{.blocks = setting.blocks,
                                                                              .slots = setting.slots,
                                                                              .snapshots = setting.snapshots,
                                                                              .drafts = setting.draft_slots,
                                                                              .record_given_up = tier != nullptr});
    const auto make_runner = [&] {
      return std::make_unique<run::Runner>(
          std::make_shared<Stepping>(model.model, [this] { step(); }),
          model.make_store(setting.blocks, setting.slots + setting.snapshots + setting.draft_slots), model.numerics,
          &pool_, kernels::table(*kernels::isa_from_name(setting.isa)));
    };
    engine_ = std::make_unique<engine::Engine>(options, std::move(caches), make_runner, std::move(tier));
  }

  // Until all jobs have ended; the answers of their choices.
  std::vector<std::vector<Answer>> run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      read();
      if (std::ranges::any_of(states_, [](const State& s) { return s.sent && !s.ended; })) {
        if (!told_.wait_for(lock, std::chrono::seconds(120), [&] { return news_; }))
          throw std::runtime_error("nothing has happened for two minutes");
        news_ = false;
        continue;
      }
      // Nothing runs, so there are no steps: the next one comes now.
      size_t next = jobs_.size();
      for (size_t i = 0; i < jobs_.size(); ++i)
        if (!states_[i].sent && (next == jobs_.size() || jobs_[i]->arrives < jobs_[next]->arrives)) next = i;
      if (next == jobs_.size()) break;
      steps_ = std::max(steps_, jobs_[next]->arrives);
      send(next);
    }
    std::vector<std::vector<Answer>> all;
    for (State& state : states_) all.push_back(std::move(state.answers));
    return all;
  }

  void add_to(Tally& tally) {
    const engine::Metrics& m = engine_->metrics();
    for (int i = 0; i < 2000 && m.kv_blocks_used != 0; ++i) usleep(1000);
    if (m.kv_blocks_used != 0) throw std::runtime_error("blocks are still held after the last answer");
    tally.preemptions += m.preemptions;
    if (tier_ == nullptr) return;
    tally.read_from_disk += tier_->counts().read;
    if (tier_->counts().bad + tier_->counts().failures > 0) throw std::runtime_error("the disk tier has met bad files");
  }

 private:
  struct State {
    bool sent = false, ended = false, aborted = false, stopped = false;
    std::shared_ptr<engine::Stream> stream;
    engine::Ticket ticket;
    std::vector<Answer> answers;
  };

  // The engine thread, in a step.
  void step() {
    const std::lock_guard lock(mutex_);
    const int now = steps_++;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (!states_[i].sent && jobs_[i]->arrives <= now) send(i);
      if (!states_[i].sent) continue;
      if (jobs_[i]->aborts >= 0 && jobs_[i]->aborts <= now && !std::exchange(states_[i].aborted, true))
        engine_->abort(states_[i].ticket);
      if (jobs_[i]->stops >= 0 && jobs_[i]->stops <= now && !std::exchange(states_[i].stopped, true))
        engine_->stop_choice(states_[i].ticket, 0);
    }
    if (now == setting_.fails_at && !std::exchange(failed_, true)) throw std::runtime_error("this step fails");
  }

  void send(size_t i) {
    const Job& job = *jobs_[i];
    State& state = states_[i];
    state.sent = true;
    state.answers.resize(static_cast<size_t>(job.choices));
    state.stream = std::make_shared<engine::Stream>(1 << 20, [this] {
      const std::lock_guard lock(mutex_);
      news_ = true;
      told_.notify_one();
    });
    engine::Submission s;
    s.request_id = fmt::format("job {}", i);
    s.prompt = job.prompt;
    s.choices = job.choices;
    s.sampling = job.sampling;
    if (job.brackets) s.sampling.constraint = std::make_shared<test::Brackets>();
    s.max_tokens = job.max_tokens;
    s.stop_ids = job.stop_ids;
    s.priority = job.priority;
    s.max_drafts = job.max_drafts;
    s.use_prefix_cache = job.use_prefix_cache;
    s.cache_salt = job.cache_salt;
    s.boundaries = job.boundaries;
    s.stream = state.stream;
    state.ticket = engine_->submit(std::move(s));
    TUTTI_CHECK(state.ticket.admission == engine::Admission::accepted);
  }

  void read() {
    for (State& state : states_) {
      if (!state.sent || state.ended) continue;
      for (engine::Event& event : state.stream->drain())
        note(state.answers.at(static_cast<size_t>(event.choice)), event);
      state.ended = std::ranges::all_of(state.answers, [](const Answer& a) { return a.finish != FinishReason::none; });
    }
  }

  static void note(Answer& answer, engine::Event& event) {
    if (answer.finish != FinishReason::none) throw std::runtime_error("an event after the last");
    if (event.token >= 0) answer.tokens.push_back(event.token);
    if (event.logprobs) answer.logprobs.push_back(std::move(*event.logprobs));
    for (auto& one : event.prompt_logprobs) answer.prompt_logprobs.push_back(std::move(one));
    answer.finish = event.finish;
    answer.stop_token = event.stop_token;
    answer.error_code = event.error_code;
    answer.prompt_tokens = event.prompt_tokens;
    answer.generated = event.generated;
    answer.cached_tokens = event.cached_tokens;
    answer.drafts_accepted = event.drafts_accepted;
    answer.drafts_rejected = event.drafts_rejected;
  }

  const Setting& setting_;
  const std::vector<const Job*> jobs_;
  std::mutex mutex_;
  std::vector<State> states_;  // guarded by mutex_
  int steps_ = 0;              // guarded by mutex_
  bool failed_ = false;        // guarded by mutex_
  std::condition_variable told_;
  bool news_ = false;  // guarded by mutex_
  ThreadPool pool_;
  cache::DiskTier* tier_ = nullptr;
  std::unique_ptr<engine::Engine> engine_;  // last: its thread uses the rest
};

class Folder {
 public:
  explicit Folder(bool wanted) {
    if (!wanted) return;
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-exact-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path = pattern;
  }
  ~Folder() {
    if (!path.empty()) std::filesystem::remove_all(path);
  }
  std::filesystem::path path;
};

bool same(const sample::TokenLogprob& a, const sample::TokenLogprob& b) {
  return a.token == b.token && a.rank == b.rank &&
         std::bit_cast<uint32_t>(a.logprob) == std::bit_cast<uint32_t>(b.logprob);
}
bool same(const sample::Logprobs& a, const sample::Logprobs& b) {
  return same(a.chosen, b.chosen) &&
         std::ranges::equal(a.top, b.top, [](const auto& x, const auto& y) { return same(x, y); });
}

template <class T, class Same>
std::string list_difference(const char* what, const std::vector<T>& got, const std::vector<T>& want, bool prefix,
                            const Same& same_one) {
  const size_t n = std::min(got.size(), want.size());
  for (size_t i = 0; i < n; ++i)
    if (!same_one(got[i], want[i])) return fmt::format("{} {} of {} differs", what, i, want.size());
  if (got.size() == want.size() || (prefix && got.size() < want.size())) return {};
  return fmt::format("{} {} instead of {}", got.size(), what, want.size());
}

// left: the job was aborted or stopped at some moment: it has the beginning of its answer.
std::string difference(const Answer& got, const Answer& want, bool left) {
  const bool early = left && (got.finish == FinishReason::abort || got.finish == FinishReason::stop) &&
                     (got.finish != want.finish || got.tokens.size() < want.tokens.size());
  std::string found = list_difference("tokens", got.tokens, want.tokens, early, std::equal_to<>());
  const auto same_logprobs = [](const sample::Logprobs& a, const sample::Logprobs& b) { return same(a, b); };
  if (found.empty()) found = list_difference("log-probabilities", got.logprobs, want.logprobs, early, same_logprobs);
  if (found.empty())
    found =
        list_difference("prompt log-probabilities", got.prompt_logprobs, want.prompt_logprobs, early, same_logprobs);
  if (found.empty() && got.generated != static_cast<int>(got.tokens.size())) found = "the usage is wrong";
  if (!found.empty() || early) return found;
  if (got.finish != want.finish)
    return fmt::format("finish {} instead of {} ({})", static_cast<int>(got.finish), static_cast<int>(want.finish),
                       got.error_code);
  if (got.stop_token != want.stop_token) return "another stop token";
  return got.error_code != want.error_code ? "another error" : "";
}

}  // namespace

std::vector<std::vector<Answer>> play(const Setting& setting, const std::vector<Job>& jobs) {
  std::vector<const Job*> all;
  for (const Job& job : jobs) all.push_back(&job);
  return Life(setting, all, {}).run();
}

// One row at a time, no cache, no guesses, no chunks, one thread.
const std::vector<Answer>& Player::alone(const Job& job, const Setting& setting) {
  const std::string key = question(job, setting);
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  Job bare = job;
  bare.use_prefix_cache = false;
  bare.max_drafts = 0;
  bare.boundaries.clear();
  bare.life = bare.arrives = 0;
  bare.aborts = bare.stops = -1;
  const int length = static_cast<int>(job.prompt.size()) + job.max_tokens;
  const Setting quiet{.subject = setting.subject,
                      .isa = setting.isa,
                      .blocks = (length + 63) / 64,
                      .slots = 1,
                      .rows = 1,
                      .max_model_len = length,
                      .prefix_caching = false};
  if (known_.size() > 500) known_.clear();
  return known_.emplace(key, std::move(Life(quiet, {&bare}, {}).run().front())).first->second;
}

std::optional<std::string> Player::differences(const Schedule& schedule) {
  const Folder folder(schedule.setting.disk);
  ++tally_.schedules;
  for (int life = 0; life < schedule.setting.lives; ++life) {
    std::vector<const Job*> jobs;
    for (const Job& job : schedule.jobs)
      if (job.life == life) jobs.push_back(&job);
    if (jobs.empty()) continue;
    std::vector<std::vector<Answer>> answers;
    try {
      Life engine(schedule.setting, jobs, folder.path);
      answers = engine.run();
      engine.add_to(tally_);
    } catch (const std::exception& e) {
      return fmt::format("life {}: {}", life, e.what());
    }
    for (size_t j = 0; j < jobs.size(); ++j) {
      const std::vector<Answer>& want = alone(*jobs[j], schedule.setting);
      const bool left = jobs[j]->aborts >= 0 || jobs[j]->stops >= 0;
      for (size_t c = 0; c < want.size(); ++c) {
        const Answer& got = answers[j][c];
        const std::string found = difference(got, want[c], left);
        if (!found.empty())
          return fmt::format("life {}, job {} of {}, choice {}: {}", life, jobs[j] - schedule.jobs.data(),
                             schedule.jobs.size(), c, found);
        ++tally_.answers;
        tally_.tokens += static_cast<int64_t>(got.tokens.size());
        tally_.cached += got.cached_tokens;
        tally_.accepted += got.drafts_accepted;
        tally_.rejected += got.drafts_rejected;
        tally_.ended_early += left && got.finish == FinishReason::abort ? 1 : 0;
      }
    }
    tally_.reruns += schedule.setting.fails_at >= 0 ? 1 : 0;
  }
  return std::nullopt;
}

}  // namespace tutti::exactness
