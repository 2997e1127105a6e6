#include "engine/engine.h"

#include <algorithm>
#include <future>
#include <thread>

#include "base/error.h"
#include "cache/disk_tier.h"
#include "cache/manager.h"
#include "engine/inbox.h"
#include "engine/loop.h"
#include "run/runner.h"

namespace tutti::engine {

namespace {
// After the drain's deadline: how long the engine thread may take to end what is left. A step in flight is waited for.
constexpr std::chrono::seconds kEndGrace{10};
}  // namespace

struct Engine::Impl {
  EngineOptions options;
  Metrics metrics;
  Gauges gauges;
  std::shared_ptr<Inbox> inbox;  // shared with the streams, which may outlive the engine
  std::unique_ptr<cache::CacheManager> caches;
  std::unique_ptr<cache::DiskTier> disk;
  std::thread thread;

  // The engine thread: everything of MLX is made, used and destroyed here.
  void serve(const std::function<std::unique_ptr<run::Runner>()>& make_runner, std::promise<void>& ready) {
    std::unique_ptr<Loop> loop;
    try {
      loop = std::make_unique<Loop>(options, Loop::Parts{.inbox = inbox,
                                                         .gauges = &gauges,
                                                         .metrics = &metrics,
                                                         .caches = caches.get(),
                                                         .runner = make_runner(),
                                                         .disk = disk.get()});
    } catch (...) {
      ready.set_exception(std::current_exception());
      return;
    }
    ready.set_value();
    loop->run();
  }
};

Engine::Engine(EngineOptions options, std::unique_ptr<cache::CacheManager> caches,
               std::function<std::unique_ptr<run::Runner>()> make_runner, std::unique_ptr<cache::DiskTier> disk)
    : impl_(std::make_unique<Impl>()) {
  TUTTI_CHECK(caches != nullptr && options.max_queue >= 0);
  impl_->options = options;
  impl_->inbox =
      std::make_shared<Inbox>(std::min(options.schedule.max_num_seqs, caches->free_slots()), options.max_queue);
  impl_->caches = std::move(caches);
  impl_->disk = std::move(disk);
  std::promise<void> ready;
  std::future<void> started = ready.get_future();
  impl_->thread = std::thread([&] { impl_->serve(make_runner, ready); });
  try {
    started.get();
  } catch (...) {
    impl_->thread.join();
    throw;
  }
}

Engine::~Engine() {
  impl_->inbox->close(Admission::stopped);
  impl_->thread.join();
}

Ticket Engine::submit(Submission submission) {
  return impl_->inbox->submit(std::move(submission));
}

void Engine::abort(const Ticket& ticket) {
  if (ticket.admission != Admission::accepted) return;
  impl_->inbox->post(EndMessage{ticket.first_sequence, ticket.choices, schedule::FinishReason::abort});
}

void Engine::stop_choice(const Ticket& ticket, int choice) {
  if (ticket.admission != Admission::accepted || choice < 0 || choice >= ticket.choices) return;
  impl_->inbox->post(EndMessage{ticket.first_sequence + choice, 1, schedule::FinishReason::stop});
}

void Engine::drain(std::chrono::seconds limit) {
  impl_->inbox->close(Admission::draining);
  if (impl_->inbox->wait_until_empty(Clock::now() + limit)) return;
  impl_->inbox->post(EndAllMessage{});
  impl_->inbox->wait_until_empty(Clock::now() + kEndGrace);
}

Health Engine::health() const {
  Health health;
  health.last_progress_s = impl_->inbox->stalled_s();
  health.healthy = health.last_progress_s <= std::chrono::duration<double>(impl_->options.watchdog).count();
  health.draining = impl_->inbox->closed();
  health.running = impl_->gauges.running.load(std::memory_order_relaxed);
  health.waiting =
      std::max(impl_->gauges.waiting.load(std::memory_order_relaxed), impl_->inbox->live() - health.running);
  return health;
}

Metrics& Engine::metrics() {
  return impl_->metrics;
}
int Engine::max_model_len() const {
  return impl_->options.schedule.max_model_len;
}
int Engine::retry_after_s() const {
  return impl_->inbox->retry_after_s();
}

}  // namespace tutti::engine
