#include "http/server.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "http/connection.h"

namespace tutti::http {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using tcp = net::ip::tcp;
using namespace std::chrono_literals;

constexpr auto kAwait = net::as_tuple(net::use_awaitable);
constexpr int kRefusals = 64;  // refused connections that are still told why; beyond, they are closed without a word

std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

struct Server::Impl {
  Impl(ServerOptions options, Handler dispatch, std::function<Response(int, std::string)> error)
      : core(std::make_shared<Core>(std::move(options), std::move(dispatch), std::move(error))),
        strand(core->io.get_executor()),
        acceptor(strand) {}

  void listen();
  net::awaitable<void> accept();
  void adopt(Connection::Strand own, tcp::socket socket);
  void stop_accepting();
  void stop();

  std::shared_ptr<Core> core;
  Connection::Strand strand;  // of the acceptor
  tcp::acceptor acceptor;     // on the strand once started
  int port = 0;
  std::optional<net::executor_work_guard<net::io_context::executor_type>> work;
  std::vector<std::thread> threads;
};

void Server::Impl::listen() {
  const ServerOptions& o = core->options;
  const auto fail = [&](const error_code& ec) {
    throw OptionError(fmt::format("can't listen on {}:{}: {}", o.host, o.port, ec.message()));
  };
  error_code ec;
  const auto found = tcp::resolver(core->io).resolve(without_brackets(o.host), std::to_string(o.port),
                                                     tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec) fail(ec);
  for (const auto& entry : found) {
    ec = {};
    if (acceptor.is_open()) acceptor.close();
    acceptor.open(entry.endpoint().protocol(), ec);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor.bind(entry.endpoint(), ec);
    if (!ec) acceptor.listen(tcp::acceptor::max_listen_connections, ec);
    if (!ec) break;
  }
  if (ec) fail(ec);
  port = acceptor.local_endpoint().port();
}

net::awaitable<void> Server::Impl::accept() {
  net::steady_timer pause(strand);
  while (acceptor.is_open()) {
    const Connection::Strand own(core->io.get_executor());
    auto [ec, socket] = co_await acceptor.async_accept(own, kAwait);
    if (!ec) {
      adopt(own, std::move(socket));
    } else if (ec != net::error::operation_aborted && ec != net::error::connection_aborted) {
      log::warn("http: accept: {}", ec.message());  // out of descriptors, as a rule: they come back
      pause.expires_after(100ms);
      co_await pause.async_wait(kAwait);
    }
  }
}

void Server::Impl::adopt(Connection::Strand own, tcp::socket socket) {
  const int before = core->connections.load(std::memory_order_relaxed);
  const bool full = before >= core->options.max_connections;
  if (before >= core->options.max_connections + kRefusals) return;
  auto connection = std::make_shared<Connection>(core, own, std::move(socket));
  {
    const std::lock_guard lock(core->mutex);
    if (core->stopping) return;
    core->live.insert(connection);
    core->connections.fetch_add(1, std::memory_order_relaxed);
  }
  if (full)
    connection->refuse(503, "too many connections");
  else
    connection->start();
}

void Server::Impl::stop_accepting() {
  core->draining = true;
  net::post(strand, [this] {
    error_code ec;
    acceptor.close(ec);
  });
}

void Server::Impl::stop() {
  if (threads.empty()) return;
  stop_accepting();
  {
    const std::lock_guard lock(core->mutex);
    core->stopping = true;
    for (const auto& connection : core->live) connection->shut();
  }
  work.reset();
  for (std::thread& t : threads) t.join();
  threads.clear();
  // What was posted meanwhile still runs; after that nothing can be posted.
  core->io.restart();
  core->io.run();
  {
    const std::lock_guard lock(core->gate);
    core->open = false;
  }
  core->io.restart();
  core->io.run();
  core->dispatch = nullptr;
  core->error = nullptr;
}

Server::Server(ServerOptions options, Handler dispatch, std::function<Response(int status, std::string message)> error)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(dispatch), std::move(error))) {}

Server::~Server() {
  stop();
}

void Server::start() {
  impl_->listen();
  impl_->work.emplace(impl_->core->io.get_executor());
  net::co_spawn(impl_->strand, impl_->accept(), net::detached);
  for (int i = 0; i < impl_->core->options.io_threads; ++i)
    impl_->threads.emplace_back([core = impl_->core] { core->io.run(); });
}

int Server::port() const {
  return impl_->port;
}
void Server::stop_accepting() {
  impl_->stop_accepting();
}
void Server::stop() {
  impl_->stop();
}
int Server::connections() const {
  return impl_->core->connections.load(std::memory_order_relaxed);
}

}  // namespace tutti::http
