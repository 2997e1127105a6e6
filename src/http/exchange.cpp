#include "http/exchange.h"

#include <exception>

#include "base/log.h"

namespace tutti::http {
namespace {

// The exchange whose task runs on this thread: what it writes is sent when the task returns, without a wake.
thread_local const ExchangeState* t_running = nullptr;

class Running {
 public:
  explicit Running(const ExchangeState* exchange) : outer_(std::exchange(t_running, exchange)) {}
  ~Running() { t_running = outer_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const ExchangeState* outer_;
};

}  // namespace

ExchangeState::ExchangeState(Request request, AnswerRules rules, std::shared_ptr<Lane> lane, std::function<void()> pump)
    : request_(std::move(request)),
      rules_(std::move(rules)),
      lane_(std::move(lane)),
      pump_(std::move(pump)),
      keep_alive_(rules_.keep_alive) {}

void ExchangeState::add_extra(Response& response) const {
  response.headers.insert(response.headers.end(), rules_.extra.begin(), rules_.extra.end());
}

void ExchangeState::queue(std::string_view bytes) {
  out_.append(bytes);
  pending_.fetch_add(bytes.size(), std::memory_order_relaxed);
}

bool ExchangeState::arm() {
  if (armed_ || t_running == this) return false;
  armed_ = true;
  return true;
}

void ExchangeState::wake() {
  lane_->post([self = shared_from_this()] { self->run_tasks(); });
}

void ExchangeState::respond(Response response) {
  add_extra(response);
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::open) return;
  phase_ = Phase::done;
  keep_alive_ = keep_alive_ && !lane_->draining();
  queue(response_head(response, {rules_.version, keep_alive_, Framing::length}));
  if (!rules_.head_only && status_has_body(response.status)) queue(response.body);
  const bool must_wake = arm();
  lock.unlock();
  if (must_wake) wake();
}

void ExchangeState::begin_stream(Response head) {
  add_extra(head);
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::open) return;
  framing_ = rules_.version >= 11 ? Framing::chunked : Framing::until_close;
  keep_alive_ = keep_alive_ && framing_ == Framing::chunked && !lane_->draining();
  phase_ = rules_.head_only ? Phase::done : Phase::streaming;
  queue(response_head(head, {rules_.version, keep_alive_, framing_}));
  const bool must_wake = arm();
  lock.unlock();
  if (must_wake) wake();
  write(std::move(head.body));
}

void ExchangeState::write(std::string bytes) {
  if (bytes.empty()) return;
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::streaming) return;
  if (framing_ == Framing::chunked) {
    const size_t before = out_.size();
    append_chunk(out_, bytes);
    pending_.fetch_add(out_.size() - before, std::memory_order_relaxed);
  } else {
    queue(bytes);
  }
  const bool must_wake = arm();
  lock.unlock();
  if (must_wake) wake();
}

void ExchangeState::end_stream() {
  end(Phase::done);
}

void ExchangeState::abort_stream() {
  end(Phase::aborted);
}

void ExchangeState::end(Phase phase) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::streaming) return;
  phase_ = phase;
  if (phase == Phase::done && framing_ == Framing::chunked) queue(kLastChunk);
  const bool must_wake = arm();
  lock.unlock();
  if (must_wake) wake();
}

void ExchangeState::post(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  tasks_.push_back(std::move(task));
  // Also from within a task: what is running now does not look at the list again.
  const bool must_wake = !std::exchange(armed_, true);
  lock.unlock();
  if (must_wake) wake();
}

void ExchangeState::on_closed(std::function<void()> callback) {
  std::unique_lock lock(mutex_);
  if (finished_) return;
  if (!closed()) {
    on_closed_ = std::move(callback);
    return;
  }
  lock.unlock();
  post(std::move(callback));
}

void ExchangeState::on_drained(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  if (!finished_ && !closed()) on_drained_ = std::move(callback);
}

bool ExchangeState::guarded(const std::function<void()>& f) {
  try {
    f();
    return true;
  } catch (const std::exception& e) {
    log::error("http: a handler threw: {}", e.what());
  } catch (...) {
    log::error("http: a handler threw");
  }
  return false;
}

void ExchangeState::run(const std::function<void()>& f) {
  bool good = true;
  {
    const Running running(this);
    good = guarded(f);
  }
  if (!good) {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::open || phase_ == Phase::streaming) phase_ = Phase::aborted;
  }
  if (!detached_) pump_();
}

void ExchangeState::run_tasks() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    armed_ = false;
    tasks.swap(tasks_);
  }
  run([&] {
    for (const std::function<void()>& task : tasks) task();
  });
}

ExchangeState::Next ExchangeState::take(std::string& bytes) {
  const std::lock_guard lock(mutex_);
  if (!out_.empty()) {
    bytes.swap(out_);
    return Next::bytes;
  }
  if (phase_ == Phase::aborted) return Next::aborted;
  return phase_ == Phase::done ? Next::finished : Next::nothing;
}

void ExchangeState::sent(size_t n) {
  if (pending_.fetch_sub(n, std::memory_order_relaxed) != n) return;
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    callback = on_drained_;
  }
  if (!callback) return;
  const Running running(this);
  guarded(callback);
}

bool ExchangeState::complete() const {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::done;
}

bool ExchangeState::keep_alive() const {
  const std::lock_guard lock(mutex_);
  return keep_alive_ && phase_ == Phase::done;
}

bool ExchangeState::close_delimited() const {
  const std::lock_guard lock(mutex_);
  return framing_ == Framing::until_close;
}

void ExchangeState::finish() {
  detached_ = true;
  std::function<void()> closed, drained;  // destroyed without the lock: they may own the exchange's user
  const std::lock_guard lock(mutex_);
  finished_ = true;
  closed.swap(on_closed_);
  drained.swap(on_drained_);
}

void ExchangeState::client_gone() {
  detached_ = true;
  std::function<void()> callback, drained;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || finished_) return;
    closed_.store(true, std::memory_order_release);
    phase_ = Phase::aborted;
    out_ = {};
    pending_.store(0, std::memory_order_relaxed);
    callback.swap(on_closed_);
    drained.swap(on_drained_);
  }
  if (!callback) return;
  const Running running(this);
  guarded(callback);
}

}  // namespace tutti::http
