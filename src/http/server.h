// HTTP/1.1 on loopback or wherever told: connections, limits, timeouts, streams. Knows nothing of language models.
// Boost stays in the .cpp files.
//
// Threads: handlers run on the io threads and must not block; everything of Exchange may be called from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // "GET"; HEAD arrives as GET, and the body of the answer is left out
  std::string path;    // decoded, without the query
  std::string query;
  Headers headers;  // names in lower case
  std::string body;
  std::string peer;  // address of the client
  // Value of the first header of that (lower-case) name, or empty.
  std::string_view header(std::string_view name) const;
};

struct Response {
  int status = 200;
  Headers headers;  // Content-Length and Connection are added
  std::string content_type = "application/json";
  std::string body;
};

// One request and its answer. Shared by the connection and whoever answers; outlives the client's disconnect.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const Request& request() const = 0;

  // Exactly one of: respond(), or begin_stream() … end_stream(). Later calls are ignored.
  virtual void respond(Response response) = 0;
  virtual void begin_stream(Response head) = 0;  // status, headers, content type; body is sent first if not empty
  virtual void write(std::string bytes) = 0;     // one chunk, flushed; ignored after the client has gone
  virtual void end_stream() = 0;
  virtual void abort_stream() = 0;  // closes the connection without the last chunk

  virtual size_t pending_bytes() const = 0;           // written but not yet taken by the client's socket
  virtual bool closed() const = 0;                    // the client has gone
  virtual void post(std::function<void()> task) = 0;  // runs on the connection's own executor, one at a time
  // Called once, on the executor: the client has gone before the answer was complete (at once if it already has).
  virtual void on_closed(std::function<void()> callback) = 0;
  // Called on the executor whenever pending_bytes() falls to zero.
  virtual void on_drained(std::function<void()> callback) = 0;
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any free port
  int io_threads = 1;
  size_t max_body_bytes = size_t{64} << 20;
  size_t max_header_bytes = size_t{64} << 10;
  int max_connections = 4096;
  std::chrono::seconds header_timeout{10}, body_timeout{60}, idle_timeout{75}, stream_stall{60};
  std::vector<std::string> allowed_origins;  // CORS, exact; empty: off
  std::vector<std::string> validate() const;
};

class Server {
 public:
  // dispatch answers every well-formed request (routing is the caller's). error answers what never became a request:
  // status and a short message → body (413, 431, 400 malformed, 408).
  Server(ServerOptions options, Handler dispatch, std::function<Response(int status, std::string message)> error);
  ~Server();

  void start();      // binds and listens; throws OptionError when the address can't be bound
  int port() const;  // the bound port
  void stop_accepting();
  void stop();  // closes everything, joins the threads
  int connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::http
