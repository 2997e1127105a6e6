// One client connection: a coroutine that reads requests in order and, while one is being answered, watches whether the
// client is still there; and the pump that sends what the exchange has queued. Only for the files of this room that use
// Asio.
//
// Threads: everything but start() and shut() runs on the connection's strand.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

#include "http/core.h"
#include "http/exchange.h"

namespace tutti::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;

  Connection(std::shared_ptr<Core> core, Strand strand, boost::asio::ip::tcp::socket socket);
  // Serves the client; registers with the core until the end.
  void start();
  // Answers nothing but that status, and closes.
  void refuse(int status, std::string message);
  // Closes at once. Any thread.
  void shut();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Task = boost::asio::awaitable<void>;
  using Check = boost::asio::awaitable<bool>;
  using Clock = std::chrono::steady_clock;

  void spawn(Task (Connection::*body)());
  Task serve();
  Task refused();
  void finish();

  // Reading. false: no request can follow; if refusal_ is set, the client is to be told.
  Check read_request();
  Check read_head();
  Check read_body();
  bool take_head(Request& request);  // target and headers of parser_'s message
  bool reject(int status, std::string message);
  bool reject(boost::system::error_code ec);
  // Waits for bytes and appends them to in_; false at the end of input, at an error or when woken for another reason.
  Check fill();
  size_t read_now(boost::system::error_code& ec);
  // Sends bytes outside of any exchange.
  Check send(std::string_view bytes);  // which outlive the sending
  // Lets the client read what was sent before the connection is closed, by reading what it still sends.
  Task linger();

  // Answering
  void dispatch(Request request);
  Task answered();
  void pump();
  void wait_writable();
  void answer_sent();
  void lose_client();

  // One timer for the deadline of whatever goes on. Pushing it out costs nothing.
  void expire_after(Clock::duration d);
  void expire_never() {
    timed_out_ = false;
    deadline_ = Clock::time_point::max();
  }
  void start_timer();
  void on_timer();
  bool reads_slowly();  // the client took bytes since the last look

  std::shared_ptr<Core> core_;
  Strand strand_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_, signal_;  // signal_ wakes answered() when there is nothing to read
  std::shared_ptr<Lane> lane_;
  std::string peer_;
  struct Refusal {
    int status;
    std::string message;
  };
  std::optional<Refusal> refusal_;

  std::string in_;                // read, not yet parsed
  std::optional<Parser> parser_;  // while a request is being read
  bool eof_ = false, broken_ = false, closed_ = false, timed_out_ = false;
  bool reading_ = false;  // a wait for input is pending

  std::shared_ptr<ExchangeState> exchange_;  // while an answer is due
  std::string out_;                          // being sent, from sent_ on
  size_t sent_ = 0;
  bool answering_ = false;
  bool pumping_ = false, blocked_ = false;  // blocked_: a wait for the socket to take more is pending
  bool keep_alive_ = true, reset_ = false;

  Clock::time_point deadline_ = Clock::time_point::max();
  bool timer_armed_ = false;
  int unacknowledged_ = 0;  // bytes in the socket's send queue when blocked_ was last looked at
};

}  // namespace tutti::http
