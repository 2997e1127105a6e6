// One request on its way through the API: its id, its answer, and what is counted and logged when it is over. Any
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "api/backend.h"
#include "api/errors.h"
#include "http/server.h"

namespace tutti::api {

class Call {
 public:
  using Clock = std::chrono::steady_clock;

  // route: the path as metrics name it.
  Call(std::shared_ptr<http::Exchange> exchange, std::string id, std::string route, Backend& backend);

  http::Exchange& exchange() const { return *exchange_; }
  const http::Request& request() const { return exchange_->request(); }
  const std::string& id() const { return id_; }
  void set_id(std::string id) { id_ = std::move(id); }  // before the answer
  Clock::time_point arrival() const { return arrival_; }

  // Every answer carries X-Request-Id. finish() counts and logs the call; only the first one counts.
  void respond(http::Response response);
  void fail(const ApiError& error, std::string_view extra = "");
  void begin_stream(http::Response head);
  void finish(int status, std::string_view note = "");

 private:
  const std::shared_ptr<http::Exchange> exchange_;
  std::string id_;
  const std::string route_;
  Backend& backend_;
  const Clock::time_point arrival_ = Clock::now();
  std::atomic<bool> finished_{false};
};

// 1 to 128 of [A-Za-z0-9._:-]
bool valid_request_id(std::string_view id);
std::string new_request_id();

}  // namespace tutti::api
