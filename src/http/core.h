// What all connections of a server share. Only for the files of this room that use Asio.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "http/server.h"

namespace tutti::http {

class Connection;

struct Core {
  Core(ServerOptions o, Handler d, std::function<Response(int, std::string)> e)
      : options(std::move(o)), dispatch(std::move(d)), error(std::move(e)), io(options.io_threads) {}

  const ServerOptions options;
  Handler dispatch;                                 // cleared when the server has stopped
  std::function<Response(int, std::string)> error;  // likewise
  boost::asio::io_context io;
  std::atomic<bool> draining{false};  // no new connections, and none is kept alive
  std::atomic<int> connections{0};

  // Exchanges may post for as long as anybody holds them: after stop() that has no effect. Posting holds the gate
  // shared.
  std::shared_mutex gate;
  bool open = true;  // guarded by gate

  std::mutex mutex;
  std::set<std::shared_ptr<Connection>> live;  // guarded by mutex
  bool stopping = false;                       // guarded by mutex
};

}  // namespace tutti::http
