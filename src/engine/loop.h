// The engine thread's side: the seven-step loop and the one error boundary. Made, run and destroyed on the engine
// thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/manager.h"
#include "engine/disk_cache.h"
#include "engine/draft_pace.h"
#include "engine/inbox.h"
#include "engine/metrics.h"
#include "engine/pace.h"
#include "run/runner.h"
#include "schedule/scheduler.h"

namespace tutti::engine {

// What other threads may read of the loop.
struct Gauges {
  std::atomic<int> running{0}, waiting{0};
};

class Loop {
 public:
  struct Parts {
    std::shared_ptr<Inbox> inbox;
    Gauges* gauges = nullptr;
    Metrics* metrics = nullptr;
    cache::CacheManager* caches = nullptr;
    std::unique_ptr<run::Runner> runner;
    cache::DiskTier* disk = nullptr;  // null: none
  };
  Loop(const EngineOptions& options, Parts parts);
  ~Loop();

  // Until the inbox is closed with `stopped`; then whatever lives gets its last event. Never throws.
  void run();

 private:
  // One sequence on its way: where its events go, and what the metrics want to know.
  struct Row {
    SequenceId id;
    std::shared_ptr<Stream> stream;
    std::string request_id;
    int choice = 0;  // as events report it
    int prompt_tokens = 0;
    int prompt_counted = 0;  // prompt tokens that the metrics have counted
    int generated = 0;
    bool started = false;
    bool paused = false;
    Clock::time_point queued, planned, first_token, last_token;
    Clock::time_point told, logged;  // when its progress was
  };
  struct RowFault {
    std::string code, message;
  };

  // The steps, in order (3 assemble, 4 forward and 5 sample are the runner's).
  bool drain();               // 1: false once stopped
  schedule::StepPlan plan();  // 2
  void commit(const schedule::StepPlan& plan, std::vector<run::RowResult>& results, double seconds);  // 6
  void publish(Row& row, Event event);                                                                // 7

  void step();
  bool attempt(const schedule::StepPlan& plan);
  void rerun_alone(const schedule::StepPlan& failed);
  void handle(Message& message);
  void accept(SubmitMessage& message);
  void accept_choice(const SubmitMessage& message, int choice);
  void fetch_prefix(const schedule::Sequence& sequence);
  void keep_caches();
  void pause_full_streams();
  void announce(const schedule::StepPlan& plan);
  void commit_row(const schedule::PlannedRow& planned, run::RowResult& result,
                  std::span<const schedule::TokenEvent> events);
  void tell_progress(Row& row, int computed);
  void observe_guesses(const schedule::StepPlan& plan, int tokens, double seconds);
  void count_drafts(const schedule::PlannedRow& row, size_t tokens);
  void observe_token(Row& row, Clock::time_point now);
  void observe_end(const Row& row, schedule::FinishReason reason);
  void observe_state();
  // The sequence ends with `event`'s reason, or with the fault.
  void end(Row& row, const schedule::TokenEvent& event, Event last, const RowFault& fault);
  void fail(SequenceId id, const RowFault& fault);
  void fail_all(const RowFault& fault);
  // After an exception that no rule covers: everything that lives gets an error, and the scheduler starts anew.
  void start_anew(const std::string& what);
  static schedule::TokenEvent last_of(const Row& row);  // ended by an error, with true counts
  Row* find(SequenceId id);

  const EngineOptions options_;
  Parts parts_;
  Metrics& metrics_;
  run::Runner& runner_;
  std::unique_ptr<schedule::Scheduler> scheduler_;
  std::optional<DiskCache> disk_;
  Pace pace_;
  DraftPace draft_pace_;
  const Clock::time_point start_ = Clock::now();
  std::unordered_map<SequenceId, Row> rows_;
  std::vector<Row*> started_;                    // rows that may have events in their streams
  std::vector<Message> messages_;                // scratch
  std::vector<schedule::SampledToken> sampled_;  // scratch
  std::string fault_;                            // what the last failed attempt threw
  int64_t preemptions_before_ = 0;               // of schedulers before this one
};

}  // namespace tutti::engine
