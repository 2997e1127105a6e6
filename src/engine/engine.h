// The engine: one thread that owns MLX and runs the seven-step loop — drain, plan, assemble, forward, sample, commit,
// publish — with the one error boundary. Everyone else talks to it by value, through the inbox and the streams.
#pragma once

#include <chrono>
#include <climits>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/metrics.h"
#include "engine/stream.h"
#include "sample/params.h"
#include "schedule/request.h"
#include "schedule/scheduler.h"

namespace tutti::run {
class Runner;
}
namespace tutti::cache {
class CacheManager;
class DiskTier;
}  // namespace tutti::cache

namespace tutti::engine {

struct EngineOptions {
  schedule::SchedulerOptions schedule;
  int max_queue = 1024;                            // sequences that wait; more: submit() refuses
  std::chrono::milliseconds step_budget{250};      // max(this, 1.5 × the measured decode-only step)
  bool adapt_drafts = true;                        // as many guesses as pay; false: always all
  std::chrono::milliseconds progress_every{1000};  // a prompt that takes longer says how far it is
  std::chrono::seconds watchdog{60};               // unhealthy when work waits and nothing has progressed for so long
};

// What crosses in: validated, nothing optional left ambiguous. choices sequences of the same prompt.
struct Submission {
  std::string request_id;
  std::vector<TokenId> prompt;
  int choices = 1;
  int first_choice = 0;  // index of the first, as events report it
  sample::SamplingParams sampling;
  int max_tokens = 0;
  std::vector<TokenId> stop_ids;
  int64_t priority = 0;
  int max_drafts = INT_MAX;  // guesses verified per step; the engine's own limit holds as well
  bool use_prefix_cache = true;
  std::string cache_salt;       // shares cached prefixes only with the same
  std::vector<int> boundaries;  // ascending positions of the prompt where a message ends
  std::shared_ptr<Stream> stream;
};

enum class Admission { accepted, queue_full, draining, stopped };

// A submitted request; abort() may be called from any thread, more than once, also after the end.
struct Ticket {
  Admission admission = Admission::stopped;
  int64_t first_sequence = -1;  // sequences first … first + choices - 1
  int choices = 0;
};

struct Health {
  bool healthy = true;
  bool draining = false;       // admits nothing any more
  double last_progress_s = 0;  // seconds since a row made a token or a prompt chunk; 0 while idle
  int running = 0, waiting = 0;
};

class Engine {
 public:
  // make_runner is called on the engine thread (MLX streams belong to threads). Throws what it throws.
  // disk: where the prefix cache goes on beyond the memory; null for none.
  Engine(EngineOptions options, std::unique_ptr<cache::CacheManager> caches,
         std::function<std::unique_ptr<run::Runner>()> make_runner, std::unique_ptr<cache::DiskTier> disk = {});
  ~Engine();  // stops without draining

  Ticket submit(Submission submission);
  void abort(const Ticket& ticket);  // all choices
  // One choice has all that its reader wants (a stop string, a repetition): its row ends and counts as stopped. The
  // choice is counted from 0 within the ticket.
  void stop_choice(const Ticket& ticket, int choice);

  // Refuses new work, lets rows finish until the deadline, then ends the rest with error "server_draining". Blocks.
  void drain(std::chrono::seconds limit);
  Health health() const;
  Metrics& metrics();
  int max_model_len() const;
  // Seconds until a place in the queue is likely free, 1 … 60 (Retry-After).
  int retry_after_s() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::engine
