// An engine over the fake model, and readers of its streams.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "cache/disk_tier.h"
#include "cache/manager.h"
#include "engine/engine.h"
#include "run/fake_model.h"
#include "run/runner.h"

namespace tutti::engine {

using Ids = std::vector<TokenId>;

struct KitchenOptions {
  int blocks = 256, slots = 16, snapshots = 0, drafts = 0, rows = 16, cap = 2048, max_model_len = 1024,
      max_queue = 1024;
  std::chrono::seconds watchdog{60};
  std::chrono::milliseconds step_budget{250};
  bool loses_all = false, adapt_drafts = false;
  uint64_t wrong_of = 3;       // one guess in so many is wrong
  std::filesystem::path disk;  // folder of the disk tier; empty: none
  int64_t disk_bytes = 1 << 30;
  std::chrono::milliseconds progress_every{1000};
};

// The engine with its model. `before` runs on the engine thread at the start of every forward pass and may throw.
struct Kitchen {
  using Hook = std::function<void(const ops::StepBatch&)>;
  explicit Kitchen(KitchenOptions o = {}, Hook before = {}, Hook before_draft = {}) {
    EngineOptions options;
    options.schedule = {.max_num_batched_tokens = o.cap, .max_num_seqs = o.rows, .max_model_len = o.max_model_len};
    options.schedule.snapshot_every = 128;
    options.schedule.max_drafts = o.drafts;
    options.adapt_drafts = o.adapt_drafts;
    options.max_queue = o.max_queue;
    options.watchdog = o.watchdog;
    options.step_budget = o.step_budget;
    options.progress_every = o.progress_every;
    std::unique_ptr<cache::DiskTier> tier;
    if (!o.disk.empty()) {
      tier = std::make_unique<cache::DiskTier>(
          cache::DiskTierOptions{.folder = o.disk, .max_bytes = o.disk_bytes, .identity = {1}});
    }
    disk = tier.get();
    engine = std::make_unique<Engine>(
        options,
        std::make_unique<cache::CacheManager>(cache::ManagerOptions{.blocks = o.blocks,
                                                                    .slots = o.slots,
                                                                    .snapshots = o.snapshots,
                                                                    .drafts = o.slots * o.drafts,
                                                                    .record_given_up = tier != nullptr}),
        [this, o, before, before_draft] {
          auto model = std::make_shared<test::FakeModel>(o.drafts > 0, o.wrong_of);
          model->before = before;
          model->before_draft = before_draft;
          auto made = std::make_unique<test::FakeStore>(o.blocks, o.slots * (1 + o.drafts) + o.snapshots);
          made->loses_all = o.loses_all;
          store = made.get();
          return std::make_unique<run::Runner>(model, std::move(made), ops::Numerics{}, nullptr, nullptr);
        },
        std::move(tier));
  }
  test::FakeStore* store = nullptr;  // belongs to the engine thread
  cache::DiskTier* disk = nullptr;   // belongs to the engine
  std::unique_ptr<Engine> engine;
};

// A hook that holds the engine after so many steps until it is opened: nobody gets more than that many tokens before.
class Gate {
 public:
  explicit Gate(int steps) : left_(steps) {}
  void pass() {
    if (--left_ < 0) open_.wait(false);
  }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<int> left_;
  std::atomic<bool> open_{false};
};

// What one choice was told.
struct Answer {
  Ids tokens;
  int starts = 0, events_before_start = 0;
  schedule::FinishReason finish = schedule::FinishReason::none;
  TokenId stop_token = -1;
  std::string error_code;
  int prompt_tokens = -1, generated = -1, cached_tokens = -1;
  std::vector<sample::Logprobs> logprobs, prompt_logprobs;
  int finishes = 0;
  std::vector<int> progress;  // prompt tokens computed, as told
};

class Client {
 public:
  explicit Client(size_t capacity = 1 << 20)
      : signal_(std::make_shared<Signal>()),
        stream_(std::make_shared<Stream>(capacity, [signal = signal_] { signal->set(); })) {}

  Submission request(Ids prompt, int max_tokens, int choices = 1) const {
    Submission s;
    s.request_id = "test";
    s.prompt = std::move(prompt);
    s.choices = choices;
    s.sampling.temperature = 0;
    s.max_tokens = max_tokens;
    s.stream = stream_;
    return s;
  }

  Client& send(Engine& engine, Submission submission) {
    choices_ = submission.choices;
    first_ = submission.first_choice;
    ticket = engine.submit(std::move(submission));
    return *this;
  }
  Client& send(Engine& engine, Ids prompt, int max_tokens) {
    return send(engine, request(std::move(prompt), max_tokens));
  }

  // Reads until every choice has ended.
  const std::map<int, Answer>& wait_all() {
    while (!ended()) {
      if (!signal_->wait()) {
        ADD_FAILURE() << "no event for a long time";
        break;
      }
      read();
    }
    return answers;
  }
  const Answer& wait() { return wait_all().begin()->second; }
  void wait_for_tokens(size_t n) {
    while (answers[first_].tokens.size() < n && answers[first_].finishes == 0) {
      if (!signal_->wait()) FAIL() << "no event for a long time";
      read();
    }
  }
  void read() {
    for (Event& event : stream_->drain()) note(event);
  }
  bool full() const { return stream_->full(); }

  Ticket ticket;
  std::map<int, Answer> answers;  // by choice

 private:
  struct Signal {
    void set() {
      const std::lock_guard lock(mutex);
      raised = true;
      changed.notify_one();
    }
    bool wait() {
      std::unique_lock lock(mutex);
      const bool ok = changed.wait_for(lock, std::chrono::seconds(60), [&] { return raised; });
      raised = false;
      return ok;
    }
    std::mutex mutex;
    std::condition_variable changed;
    bool raised = false;
  };

  bool ended() const {
    if (static_cast<int>(answers.size()) < choices_) return false;
    for (const auto& [choice, answer] : answers)
      if (answer.finishes == 0) return false;
    return true;
  }

  void note(Event& event) {
    Answer& a = answers[event.choice];
    EXPECT_EQ(a.finishes, 0) << "an event after the last";
    if (event.started) ++a.starts;
    if (a.starts == 0) ++a.events_before_start;
    if (event.token >= 0) a.tokens.push_back(event.token);
    if (event.prompt_computed > 0) a.progress.push_back(event.prompt_computed);
    if (event.logprobs) a.logprobs.push_back(*event.logprobs);
    for (auto& l : event.prompt_logprobs) a.prompt_logprobs.push_back(l);
    if (event.finish == schedule::FinishReason::none) return;
    ++a.finishes;
    a.finish = event.finish;
    a.stop_token = event.stop_token;
    a.error_code = event.error_code;
    a.prompt_tokens = event.prompt_tokens;
    a.generated = event.generated;
    a.cached_tokens = event.cached_tokens;
  }

  std::shared_ptr<Signal> signal_;
  std::shared_ptr<Stream> stream_;
  int choices_ = 1, first_ = 0;
};

// Requests that run at once; the readers of some leave.
class Crowd {
 public:
  void send(Engine& engine, const std::function<Submission(const Client&)>& make, bool leaves) {
    Asked& asked = *asked_.emplace_back(std::make_unique<Asked>());
    Submission submission = make(asked.client);
    asked.prompt = submission.prompt;
    asked.max_tokens = submission.max_tokens;
    asked.left = leaves;
    asked.client.send(engine, std::move(submission));
    if (leaves) engine.abort(asked.client.ticket);
  }

  // Every choice of those who stayed is what greedy decoding by hand gives.
  void expect_answers_as_alone(int seed) {
    for (const auto& asked : asked_) {
      for (const auto& [choice, answer] : asked->client.wait_all()) {
        if (asked->left) continue;
        EXPECT_EQ(answer.tokens, test::expected_answer(asked->prompt, asked->max_tokens)) << "seed " << seed;
      }
    }
  }

 private:
  struct Asked {
    Client client;
    Ids prompt;
    int max_tokens = 0;
    bool left = false;
  };
  std::vector<std::unique_ptr<Asked>> asked_;
};

// n tokens; those of another seed differ from the first on.
inline Ids tokens(int n, int seed = 3) {
  Ids ids;
  for (int i = 0; i < n; ++i)
    ids.push_back(
        static_cast<TokenId>(test::mix(static_cast<uint64_t>(seed), static_cast<uint64_t>(i)) % test::kVocab));
  return ids;
}

// A prompt that is its own in length and tokens.
inline Ids prompt_of(int seed, int longest = 200) {
  return tokens(1 + static_cast<int>(test::mix(7, static_cast<uint64_t>(seed)) % static_cast<uint64_t>(longest)), seed);
}

// Polls until it holds; the engine thread needs a moment after it has sent the last event.
inline bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 5000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace tutti::engine
