// Stand-ins for the connection and for the engine.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "api/backend.h"
#include "http/server.h"

namespace tutti::api {

// Collects the answer. Tasks that are posted run at once on the posting thread, or when run_posted() is called.
class FakeExchange final : public http::Exchange {
 public:
  explicit FakeExchange(http::Request request = {}, bool immediate = true)
      : request_(std::move(request)), immediate_(immediate) {}

  const http::Request& request() const override { return request_; }
  void respond(http::Response response) override {
    ++answers;
    head = std::move(response);
    body = head.body;
  }
  void begin_stream(http::Response response) override {
    ++answers;
    head = std::move(response);
    streaming = true;
  }
  void write(std::string bytes) override {
    writes.push_back(bytes);
    body += bytes;
  }
  void end_stream() override { ended = true; }
  void abort_stream() override { ended = true; }
  size_t pending_bytes() const override { return pending; }
  bool closed() const override { return gone; }
  void post(std::function<void()> task) override {
    if (immediate_) return task();
    posted_.push_back(std::move(task));
  }
  void on_closed(std::function<void()> callback) override { on_closed_ = std::move(callback); }
  void on_drained(std::function<void()> callback) override { on_drained_ = std::move(callback); }

  void run_posted() {
    for (size_t i = 0; i < posted_.size(); ++i) {
      const auto task = posted_[i];  // a task may post more
      task();
    }
    posted_.clear();
  }
  void close() {
    gone = true;
    if (on_closed_) on_closed_();
  }
  void drained() {
    pending = 0;
    if (on_drained_) on_drained_();
  }
  std::string header(const std::string& name) const {
    for (const auto& [key, value] : head.headers) {
      if (key == name) return value;
    }
    return {};
  }

  http::Response head;
  std::string body;
  std::vector<std::string> writes;
  int answers = 0;
  size_t pending = 0;
  bool streaming = false, gone = false;
  std::atomic<bool> ended{false};

 private:
  const http::Request request_;
  const bool immediate_;
  std::vector<std::function<void()>> posted_;
  std::function<void()> on_closed_, on_drained_;
};

// Takes submissions; a script may push events into their streams.
class FakeBackend final : public Backend {
 public:
  engine::Ticket submit(engine::Submission submission) override {
    if (admission != engine::Admission::accepted) return {.admission = admission};
    const engine::Ticket ticket{engine::Admission::accepted, next_, submission.choices};
    next_ += submission.choices;
    submissions.push_back(std::move(submission));
    if (on_submit) on_submit(submissions.back());
    return ticket;
  }
  void abort(const engine::Ticket& ticket) override { aborted.push_back(ticket.first_sequence); }
  void stop_choice(const engine::Ticket& ticket, int choice) override {
    stopped_choices.push_back(ticket.first_sequence + choice);
  }
  engine::Health health() const override { return state; }
  int retry_after_s() const override { return 7; }
  engine::Metrics& metrics() override { return metrics_; }

  std::vector<engine::Submission> submissions;
  std::vector<int64_t> aborted, stopped_choices;
  engine::Admission admission = engine::Admission::accepted;
  engine::Health state;
  std::function<void(engine::Submission&)> on_submit;

 private:
  int64_t next_ = 0;
  engine::Metrics metrics_;
};

}  // namespace tutti::api
