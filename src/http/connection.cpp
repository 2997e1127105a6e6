#include "http/connection.h"

#include <sys/ioctl.h>
#ifdef __linux__
#include <linux/sockios.h>
#endif

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <climits>

#include "base/log.h"
#include "http/cors.h"

namespace tutti::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast::http;
using boost::system::error_code;
using tcp = net::ip::tcp;
using namespace std::chrono_literals;

constexpr auto kAwait = net::as_tuple(net::use_awaitable);
constexpr size_t kReadAhead = 64 << 10;     // of pipelined requests, while an answer is due
constexpr size_t kKeptCapacity = 64 << 10;  // of buffers, between requests
constexpr auto kLinger = 5s;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

class StrandLane final : public Lane {
 public:
  StrandLane(std::shared_ptr<Core> core, Connection::Strand strand)
      : core_(std::move(core)), strand_(std::move(strand)) {}
  void post(std::function<void()> task) override {
    const std::shared_lock lock(core_->gate);
    if (core_->open) net::post(strand_, std::move(task));
  }
  bool draining() const override { return core_->draining.load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<Core> core_;  // owns what the strand runs on
  Connection::Strand strand_;
};

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool would_block(const error_code& ec) {
  return ec == net::error::would_block || ec == net::error::try_again;
}

void shrink(std::string& buffer) {
  if (buffer.empty() && buffer.capacity() > kKeptCapacity) std::string().swap(buffer);
}

}  // namespace

Connection::Connection(std::shared_ptr<Core> core, Strand strand, tcp::socket socket)
    : core_(std::move(core)),
      strand_(strand),
      socket_(std::move(socket)),
      timer_(strand),
      signal_(strand),
      lane_(std::make_shared<StrandLane>(core_, strand)) {
  error_code ec;
  const tcp::endpoint peer = socket_.remote_endpoint(ec);
  if (!ec) peer_ = peer.address().to_string();
  socket_.non_blocking(true, ec);
  socket_.set_option(tcp::no_delay(true), ec);
  socket_.set_option(net::socket_base::keep_alive(true), ec);
  // The kernel doubles it. Small, so that a client that stops reading shows soon and costs little.
  socket_.set_option(net::socket_base::send_buffer_size(64 << 10), ec);
}

void Connection::start() {
  spawn(&Connection::serve);
}

void Connection::refuse(int status, std::string message) {
  reject(status, std::move(message));
  spawn(&Connection::refused);
}

void Connection::spawn(Task (Connection::*body)()) {
  net::co_spawn(
      strand_, [self = shared_from_this(), body] { return (self.get()->*body)(); },
      [self = shared_from_this()](std::exception_ptr error) {
        try {
          if (error) std::rethrow_exception(error);
        } catch (const std::exception& e) {
          log::error("http: connection of {}: {}", self->peer_, e.what());
        }
        self->finish();
      });
}

void Connection::shut() {
  net::post(strand_, [self = shared_from_this()] {
    self->closed_ = true;
    self->lose_client();
  });
}

void Connection::finish() {
  lose_client();
  timer_.cancel();
  const std::lock_guard lock(core_->mutex);
  core_->live.erase(shared_from_this());
  core_->connections.fetch_sub(1, std::memory_order_relaxed);
}

net::awaitable<void> Connection::serve() {
  while (!closed_) {
    const bool due = co_await read_request();
    if (!due) break;
    answering_ = true;
    co_await answered();
    answering_ = false;
    if (closed_ || !keep_alive_ || (eof_ && in_.empty())) break;
    shrink(in_);
    shrink(out_);
  }
  if (refusal_)
    co_await refused();
  else if (!closed_ && !reset_)
    co_await linger();
}

net::awaitable<void> Connection::refused() {
  const Response response = core_->error(refusal_->status, refusal_->message);
  std::string bytes = response_head(response, {.version = 11, .keep_alive = false, .framing = Framing::length});
  if (status_has_body(response.status)) bytes += response.body;
  const bool sent = co_await send(bytes);
  if (sent) co_await linger();
}

// Reading

net::awaitable<bool> Connection::read_request() {
  // In the connection, not in the coroutine: frames stay small.
  Parser& parser = parser_.emplace();
  parser.header_limit(static_cast<uint32_t>(core_->options.max_header_bytes));
  parser.body_limit(core_->options.max_body_bytes);
  const bool has_head = co_await read_head();
  if (!has_head) co_return false;

  Request request;
  if (!take_head(request)) co_return false;
  if (!parser.is_done()) {
    const bool has_body = co_await read_body();
    if (!has_body) co_return false;
  }
  dispatch(std::move(request));
  co_return true;
}

bool Connection::take_head(Request& request) {
  const auto& head = parser_->get();
  std::optional<Target> target = parse_target({head.target().data(), head.target().size()});
  if (!target) return reject(400, "malformed request: bad escape in the request target");
  request.method = std::string(head.method_string());
  request.path = std::move(target->path);
  request.query = std::move(target->query);
  request.peer = peer_;
  for (const auto& field : head)
    request.headers.emplace_back(lower_case({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value()));
  if (const auto te = request.header("transfer-encoding"); !te.empty() && !iequals(te, "chunked"))
    return reject(400, "malformed request: transfer encodings other than chunked are not understood");
  if (const auto expect = request.header("expect"); !expect.empty() && !iequals(expect, "100-continue"))
    return reject(417, "only the expectation 100-continue can be met");
  return true;
}

net::awaitable<bool> Connection::read_head() {
  Parser& parser = *parser_;
  bool begun = false;
  expire_after(core_->options.idle_timeout);
  for (;;) {
    if (!begun) in_.erase(0, std::min(in_.find_first_not_of("\r\n"), in_.size()));  // left by some clients after a body
    if (!in_.empty()) {
      if (!begun) expire_after(core_->options.header_timeout);
      begun = true;
      error_code ec;
      const size_t used = parser.put(net::buffer(in_), ec);
      in_.erase(0, used);
      if (ec && ec != beast::error::need_more) co_return reject(ec);
      if (parser.is_header_done()) co_return true;
    }
    if (co_await fill()) continue;
    if (timed_out_ && begun) co_return reject(408, "the request's header did not arrive in time");
    if (eof_ && begun) co_return reject(400, "malformed request: the header ends early");
    co_return false;
  }
}

net::awaitable<bool> Connection::read_body() {
  Parser& parser = *parser_;
  expire_after(core_->options.body_timeout);
  parser.eager(true);
  if (parser.get().version() == 11 && in_.empty() && !parser.get()[beast::field::expect].empty()) {
    const bool sent = co_await send(kContinue);
    if (!sent) co_return false;
    expire_after(core_->options.body_timeout);
  }
  while (!parser.is_done()) {
    if (!in_.empty()) {
      error_code ec;
      const size_t used = parser.put(net::buffer(in_), ec);
      in_.erase(0, used);
      if (ec && ec != beast::error::need_more) co_return reject(ec);
      if (parser.is_done()) break;
    }
    if (co_await fill()) continue;
    if (timed_out_) co_return reject(408, "the request's body did not arrive in time");
    if (eof_) co_return reject(400, "malformed request: the body ends early");
    co_return false;
  }
  co_return true;
}

bool Connection::reject(error_code ec) {
  if (ec == beast::error::body_limit)
    return reject(413, fmt::format("the body is larger than {} bytes", core_->options.max_body_bytes));
  if (ec == beast::error::header_limit)
    return reject(431, fmt::format("the headers are larger than {} bytes", core_->options.max_header_bytes));
  return reject(400, "malformed request: " + ec.message());
}

bool Connection::reject(int status, std::string message) {
  refusal_ = Refusal{status, std::move(message)};
  return false;
}

size_t Connection::read_now(error_code& ec) {
  std::array<char, 64 << 10> chunk;
  const size_t n = socket_.read_some(net::buffer(chunk), ec);
  in_.append(chunk.data(), n);
  return n;
}

net::awaitable<bool> Connection::fill() {
  for (;;) {
    if (closed_ || timed_out_ || eof_ || broken_) co_return false;
    error_code ec;
    if (read_now(ec) > 0) co_return true;
    if (ec == net::error::eof)
      eof_ = true;
    else if (ec && !would_block(ec))
      broken_ = true;
    if (eof_ || broken_) co_return false;
    reading_ = true;
    const auto [waited] = co_await socket_.async_wait(tcp::socket::wait_read, kAwait);
    reading_ = false;
    if (waited || (answering_ && !exchange_)) co_return false;
  }
}

net::awaitable<bool> Connection::send(std::string_view bytes) {
  expire_after(core_->options.stream_stall);
  const auto [ec, n] = co_await net::async_write(socket_, net::const_buffer(bytes.data(), bytes.size()), kAwait);
  co_return !ec;
}

net::awaitable<void> Connection::linger() {
  error_code ec;
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  expire_after(kLinger);
  do in_.clear();
  while (!ec && co_await fill());
}

// Answering

void Connection::dispatch(Request request) {
  expire_never();
  AnswerRules rules;
  rules.version = static_cast<int>(parser_->get().version());
  rules.head_only = request.method == "HEAD";
  rules.keep_alive = parser_->keep_alive();
  rules.extra = cors_headers(request, core_->options.allowed_origins);
  std::optional<Response> early = preflight(request, core_->options.allowed_origins);
  request.body = std::move(parser_->get().body());
  parser_.reset();
  if (rules.head_only) request.method = "GET";
  keep_alive_ = reset_ = false;
  exchange_ = std::make_shared<ExchangeState>(std::move(request), std::move(rules), lane_, [this] { pump(); });
  const std::shared_ptr<ExchangeState> exchange = exchange_;
  exchange->run([&] { early ? exchange->respond(*std::move(early)) : core_->dispatch(exchange); });
}

net::awaitable<void> Connection::answered() {
  while (exchange_) {
    // A client that closes its sending side before the answer is complete can't be told from one that has gone.
    if (broken_ || closed_ || timed_out_ || (eof_ && !exchange_->complete())) {
      lose_client();
    } else if (eof_ || in_.size() >= kReadAhead) {
      signal_.expires_at(Clock::time_point::max());
      co_await signal_.async_wait(kAwait);
    } else {
      co_await fill();
    }
  }
}

void Connection::pump() {
  if (!exchange_ || pumping_ || blocked_) return;
  const std::shared_ptr<ExchangeState> exchange = exchange_;
  pumping_ = true;
  auto next = ExchangeState::Next::bytes;
  for (;;) {
    if (sent_ == out_.size()) {
      out_.clear();
      sent_ = 0;
      next = exchange->take(out_);
      if (next != ExchangeState::Next::bytes) break;
    }
    error_code ec;
    const size_t n = socket_.write_some(net::buffer(out_) + sent_, ec);
    if (ec) {
      pumping_ = false;
      return would_block(ec) ? wait_writable() : lose_client();
    }
    sent_ += n;
    exchange->sent(n);
  }
  pumping_ = false;
  if (next == ExchangeState::Next::aborted) reset_ = exchange->close_delimited();
  if (next != ExchangeState::Next::nothing) answer_sent();
}

void Connection::wait_writable() {
  blocked_ = true;
  unacknowledged_ = INT_MAX;
  reads_slowly();
  expire_after(core_->options.stream_stall);
  socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](error_code ec) {
    self->blocked_ = false;
    self->expire_never();
    if (ec)
      self->lose_client();
    else
      self->pump();
  });
}

void Connection::answer_sent() {
  keep_alive_ = exchange_->keep_alive();
  exchange_->finish();
  exchange_.reset();
  if (reset_) {
    error_code ec;
    socket_.set_option(net::socket_base::linger(true, 0), ec);
  }
  error_code ec;
  if (reading_) socket_.cancel(ec);
  signal_.cancel();
}

void Connection::lose_client() {
  const std::shared_ptr<ExchangeState> exchange = std::exchange(exchange_, nullptr);
  closed_ = true;
  error_code ec;
  socket_.close(ec);
  signal_.cancel();
  if (exchange) exchange->client_gone();
}

// Deadlines

void Connection::expire_after(Clock::duration d) {
  timed_out_ = false;
  deadline_ = Clock::now() + d;
  if (!timer_armed_ || deadline_ < timer_.expiry()) start_timer();
}

void Connection::start_timer() {
  timer_armed_ = true;
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this()](error_code ec) {
    if (ec) return;
    self->timer_armed_ = false;
    self->on_timer();
  });
}

void Connection::on_timer() {
  if (closed_ || deadline_ == Clock::time_point::max()) return;
  if (Clock::now() < deadline_) return start_timer();
  if (blocked_ && reads_slowly()) return expire_after(core_->options.stream_stall);
  timed_out_ = true;
  error_code ec;
  socket_.cancel(ec);
}

bool Connection::reads_slowly() {
#ifdef __linux__
  int queued = 0;
  if (::ioctl(socket_.native_handle(), SIOCOUTQ, &queued) != 0) return false;
  return queued < std::exchange(unacknowledged_, queued);
#else
  return false;
#endif
}

}  // namespace tutti::http
