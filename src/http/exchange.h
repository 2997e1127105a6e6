// One request and its answer: the side that answers (any thread) and the side of the connection (its executor).
#pragma once

#include <atomic>
#include <mutex>

#include "http/message.h"
#include "http/server.h"

namespace tutti::http {

// What an exchange needs of its connection's executor. Outlives the connection and, after stop(), the server.
class Lane {
 public:
  virtual ~Lane() = default;
  // Runs the task on the executor, one at a time. Any thread. Dropped once the server has stopped.
  virtual void post(std::function<void()> task) = 0;
  // No further request is wanted on this connection.
  virtual bool draining() const = 0;
};

// What the request decided about its answer.
struct AnswerRules {
  int version = 11;
  bool head_only = false;
  bool keep_alive = true;
  Headers extra;  // added to the answer's headers
};

class ExchangeState final : public Exchange, public std::enable_shared_from_this<ExchangeState> {
 public:
  // pump sends what is queued; it is called on the executor until finish() or client_gone().
  ExchangeState(Request request, AnswerRules rules, std::shared_ptr<Lane> lane, std::function<void()> pump);

  const Request& request() const override { return request_; }
  void respond(Response response) override;
  void begin_stream(Response head) override;
  void write(std::string bytes) override;
  void end_stream() override;
  void abort_stream() override;
  size_t pending_bytes() const override { return pending_.load(std::memory_order_relaxed); }
  bool closed() const override { return closed_.load(std::memory_order_acquire); }
  void post(std::function<void()> task) override;
  void on_closed(std::function<void()> callback) override;
  void on_drained(std::function<void()> callback) override;

  // The connection's side; on the executor only.

  // Runs f, then sends what it (and whoever else) wrote. f's exceptions abort the answer.
  void run(const std::function<void()>& f);

  enum class Next { bytes, nothing, finished, aborted };
  // Moves what is queued to `bytes` (empty); without any, says whether more can come.
  Next take(std::string& bytes);
  // n bytes have left for the socket. Calls the drained callback when they were the last.
  void sent(size_t n);
  // The answer is complete, though perhaps not sent.
  bool complete() const;
  // Whether the connection may serve another request; settled once the answer is complete.
  bool keep_alive() const;
  bool close_delimited() const;
  // All of the answer is with the socket: no callback follows.
  void finish();
  // No answer can be delivered any more.
  void client_gone();

 private:
  enum class Phase { open, streaming, done, aborted };

  void add_extra(Response& response) const;
  void queue(std::string_view bytes);  // under mutex_
  void wake();                         // not under mutex_
  bool arm();                          // under mutex_: true if the caller must wake()
  void run_tasks();
  void end(Phase phase);
  // Calls f; false if it threw.
  static bool guarded(const std::function<void()>& f);

  const Request request_;
  const AnswerRules rules_;
  const std::shared_ptr<Lane> lane_;
  const std::function<void()> pump_;
  bool detached_ = false;  // executor only: pump_ may not be called any more

  std::atomic<size_t> pending_{0};
  std::atomic<bool> closed_{false};

  mutable std::mutex mutex_;  // guards all below
  Phase phase_ = Phase::open;
  Framing framing_ = Framing::length;
  bool keep_alive_ = true;
  bool armed_ = false;  // a wake is on its way
  std::string out_;
  std::vector<std::function<void()>> tasks_;
  std::function<void()> on_closed_, on_drained_;
  bool finished_ = false;
};

}  // namespace tutti::http
