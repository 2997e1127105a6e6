#include "api/call.h"

#include <algorithm>
#include <random>

#include "base/log.h"

namespace tutti::api {

Call::Call(std::shared_ptr<http::Exchange> exchange, std::string id, std::string route, Backend& backend)
    : exchange_(std::move(exchange)), id_(std::move(id)), route_(std::move(route)), backend_(backend) {}

void Call::respond(http::Response response) {
  const int status = response.status;
  response.headers.emplace_back("X-Request-Id", id_);
  exchange_->respond(std::move(response));
  finish(status);
}

void Call::fail(const ApiError& error, std::string_view extra) {
  http::Response response = to_response(error, extra);
  response.headers.emplace_back("X-Request-Id", id_);
  exchange_->respond(std::move(response));
  if (!error.code.empty()) backend_.metrics().count_rejected(error.code);
  finish(error.status, error.code);
}

void Call::begin_stream(http::Response head) {
  head.headers.emplace_back("X-Request-Id", id_);
  exchange_->begin_stream(std::move(head));
}

void Call::finish(int status, std::string_view note) {
  if (finished_.exchange(true)) return;
  backend_.metrics().count_http(route_, status);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - arrival_).count();
  const auto level = status >= 500 ? log::Level::warn : log::Level::info;
  log::write(level, fmt::format("{} {} {} {} {} ms{}{}", id_, request().method, route_, status, ms,
                                note.empty() ? "" : " ", note));
}

bool valid_request_id(std::string_view id) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == ':' || c == '-';
  };
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), allowed);
}

std::string new_request_id() {
  static constexpr std::string_view kAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device()};
    return std::mt19937_64(seeds);
  }();
  std::string id(24, '0');
  for (char& c : id) c = kAlphabet[generator() % kAlphabet.size()];
  return id;
}

}  // namespace tutti::api
