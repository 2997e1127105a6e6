// A server on any free port. /echo answers at once; every other path hands its exchange to the test.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "http/raw_client.h"
#include "http/server.h"

namespace tutti::http {

inline ServerOptions any_port() {
  ServerOptions options;
  options.port = 0;
  return options;
}

class TestServer {
 public:
  explicit TestServer(ServerOptions options = any_port())
      : server_(
            std::move(options), [this](std::shared_ptr<Exchange> e) { dispatch(std::move(e)); },
            [](int status, std::string message) {
              Response r;
              r.status = status;
              r.body = "error: " + message;
              return r;
            }) {
    server_.start();
  }

  Server& server() { return server_; }
  int port() const { return server_.port(); }
  RawClient client(int receive_buffer = 0) { return RawClient(port(), receive_buffer); }

  // The next exchange that was not answered by the server itself; null after 5 s.
  std::shared_ptr<Exchange> next() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(5), [this] { return !exchanges_.empty(); })) return nullptr;
    std::shared_ptr<Exchange> e = std::move(exchanges_.front());
    exchanges_.pop_front();
    return e;
  }
  size_t waiting() {
    const std::lock_guard lock(mutex_);
    return exchanges_.size();
  }

 private:
  void dispatch(std::shared_ptr<Exchange> e) {
    const Request& q = e->request();
    if (q.path == "/throw") throw std::runtime_error("on purpose");
    if (q.path.starts_with("/echo")) {
      Response r;
      r.content_type = "text/plain";
      r.body = q.method + " " + q.path + " [" + q.query + "] " + q.body;
      r.headers = {{"X-Test", std::string(q.header("x-test"))}};
      e->respond(std::move(r));
      return;
    }
    const std::lock_guard lock(mutex_);
    exchanges_.push_back(std::move(e));
    arrived_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Exchange>> exchanges_;
  Server server_;
};

// Waits until the condition holds; false when it does not within the time.
template <class F>
bool eventually(F condition, int milliseconds = 5000) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline Response event_stream() {
  Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  return head;
}

}  // namespace tutti::http
