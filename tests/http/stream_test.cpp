// Streams, and clients that go away or stop reading.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "http/test_server.h"

namespace tutti::http {
namespace {

constexpr int kNoticed = 300;  // ms within which a client's end is seen

std::string event(int i) {
  return "data: {\"token\": " + std::to_string(i) + "}\n\n";
}

// Counts calls of on_closed.
struct Gone {
  explicit Gone(Exchange& e) {
    e.on_closed([n = count] { ++*n; });
  }
  bool within(int milliseconds) const {
    return eventually([this] { return *count > 0; }, milliseconds);
  }
  std::shared_ptr<std::atomic<int>> count = std::make_shared<std::atomic<int>>(0);
};

TEST(Stream, ChunksArriveAsTheyAreWritten) {
  TestServer server;
  RawClient client = server.client();
  client.get("/stream");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  Response head = event_stream();
  head.headers = {{"Cache-Control", "no-cache"}};
  head.body = ": hello\n\n";
  exchange->begin_stream(std::move(head));
  const std::string seen = client.read_until(": hello\n\n\r\n");
  EXPECT_THAT(seen, testing::HasSubstr("Content-Type: text/event-stream; charset=utf-8\r\n"));
  EXPECT_THAT(seen, testing::HasSubstr("Cache-Control: no-cache\r\n"));
  for (int i = 0; i < 5; ++i) {
    exchange->write(event(i));
    EXPECT_THAT(client.read_until("\n\n\r\n"), testing::HasSubstr(event(i)));
  }
  exchange->write("");  // would be the end if it were sent
  exchange->write("x");
  exchange->end_stream();
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "1\r\nx\r\n0\r\n\r\n");
  client.get("/echo");
  EXPECT_EQ(client.response().status, 200);
}

TEST(Stream, AbortLeavesTheBodyUnfinished) {
  TestServer server;
  RawClient client = server.client();
  client.get("/stream");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  exchange->begin_stream(event_stream());
  exchange->write("part");
  exchange->abort_stream();
  const RawResponse r = client.response();
  EXPECT_EQ(r.body, "part");
  EXPECT_FALSE(r.complete);
  EXPECT_TRUE(client.closed_within(1000));
}

TEST(Stream, Http10ReadsUntilTheEnd) {
  TestServer server;
  RawClient client = server.client();
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  exchange->begin_stream(event_stream());
  exchange->write("one ");
  exchange->write("two");
  exchange->end_stream();
  RawResponse r = client.response();
  EXPECT_EQ(r.headers["Connection"], "close");
  EXPECT_EQ(r.headers.count("Transfer-Encoding"), 0u);
  EXPECT_EQ(r.body, "one two");
}

TEST(Disconnect, IsNoticedWhileTheAnswerIsComputed) {
  TestServer server;
  for (bool reset : {false, true}) {
    RawClient client = server.client();
    client.get("/hold");
    const auto exchange = server.next();
    ASSERT_TRUE(exchange);
    const Gone gone(*exchange);
    EXPECT_FALSE(gone.within(20));
    if (reset)
      client.reset();
    else
      client.close();
    EXPECT_TRUE(gone.within(kNoticed));
    EXPECT_TRUE(exchange->closed());
    exchange->respond({});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(*gone.count, 1);
  }
  EXPECT_TRUE(eventually([&] { return server.server().connections() == 0; }));
}

TEST(Disconnect, IsNoticedBehindPipelinedBytes) {
  TestServer server;
  RawClient client = server.client();
  client.get("/hold");
  client.get("/hold/next");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  const Gone gone(*exchange);
  client.close();
  EXPECT_TRUE(gone.within(kNoticed));
  EXPECT_EQ(server.waiting(), 0u);
}

TEST(Disconnect, IsNoticedInASilentStream) {
  TestServer server;
  RawClient client = server.client();
  client.get("/stream");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  const Gone gone(*exchange);
  exchange->begin_stream(event_stream());
  exchange->write(event(0));
  client.read_until(event(0));
  client.close();
  EXPECT_TRUE(gone.within(kNoticed));
  exchange->write("nobody");
  EXPECT_EQ(exchange->pending_bytes(), 0u);
}

TEST(Disconnect, IsNoticedWhileWriting) {
  TestServer server;
  RawClient client = server.client();
  client.get("/stream");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  const Gone gone(*exchange);
  exchange->begin_stream(event_stream());
  std::thread writer([&] {
    for (int i = 0; !exchange->closed() && i < 5000; ++i) {
      exchange->write(event(i));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  client.read_until(event(10));
  client.reset();
  EXPECT_TRUE(gone.within(kNoticed));
  writer.join();
  EXPECT_EQ(*gone.count, 1);
}

TEST(Disconnect, ACallbackThatComesLateRunsAtOnce) {
  TestServer server;
  RawClient client = server.client();
  client.get("/hold");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  client.close();
  ASSERT_TRUE(eventually([&] { return exchange->closed(); }));
  const Gone gone(*exchange);
  EXPECT_TRUE(gone.within(kNoticed));
}

TEST(Disconnect, IsNotReportedAfterACompleteAnswer) {
  TestServer server;
  RawClient client = server.client();
  client.get("/hold");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  const Gone gone(*exchange);
  exchange->respond({.body = "ok"});
  EXPECT_EQ(client.response().body, "ok");
  client.close();
  EXPECT_TRUE(eventually([&] { return server.server().connections() == 0; }));
  EXPECT_EQ(*gone.count, 0);
  EXPECT_FALSE(exchange->closed());
}

TEST(Disconnect, CallbacksReleaseWhatTheyHold) {
  TestServer server;
  RawClient client = server.client();
  for (bool answered : {true, false}) {
    client = server.client();
    client.get("/hold");
    auto exchange = server.next();
    ASSERT_TRUE(exchange);
    exchange->on_closed([exchange] {});
    exchange->on_drained([exchange] {});
    const std::weak_ptr<Exchange> weak = exchange;
    if (answered)
      exchange->respond({});
    else
      client.close();
    exchange.reset();
    EXPECT_TRUE(eventually([&] { return weak.expired(); })) << "answered: " << answered;
  }
}

TEST(HalfClose, AQuickAnswerStillArrives) {
  TestServer server;
  RawClient client = server.client();
  client.send("GET /echo HTTP/1.1\r\nHost: t\r\n\r\nGET /echo/2 HTTP/1.1\r\nHost: t\r\n\r\n");
  client.shut_sending();
  EXPECT_EQ(client.response().body, "GET /echo [] ");
  EXPECT_EQ(client.response().body, "GET /echo/2 [] ");
  EXPECT_TRUE(client.closed_within(1000));
}

TEST(HalfClose, CountsAsGoneWhileTheAnswerIsComputed) {
  TestServer server;
  RawClient client = server.client();
  client.get("/hold");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  const Gone gone(*exchange);
  client.shut_sending();
  EXPECT_TRUE(gone.within(kNoticed));
  EXPECT_TRUE(client.closed_within(1000));
}

TEST(SlowReader, SeesEverythingAndBlocksNobody) {
  TestServer server;
  RawClient slow = server.client(4096), quick = server.client();
  slow.get("/stream");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  std::atomic<int> drained{0};
  exchange->on_drained([&] { ++drained; });
  exchange->begin_stream(event_stream());
  std::string all;
  for (int i = 0; i < 40000; ++i) {
    all += event(i);
    exchange->write(event(i));
  }
  EXPECT_GT(exchange->pending_bytes(), size_t{200000});
  quick.get("/echo");
  EXPECT_EQ(quick.response().status, 200);
  exchange->end_stream();
  const RawResponse r = slow.response();
  EXPECT_TRUE(r.complete);
  EXPECT_EQ(r.body, all);
  EXPECT_TRUE(eventually([&] { return drained > 0; }));
  EXPECT_EQ(exchange->pending_bytes(), 0u);
}

TEST(SlowReader, DrainedIsCalledWhenEverythingIsWithTheSocket) {
  TestServer server;
  RawClient client = server.client();
  client.get("/stream");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  // A writer that goes on only when the last piece has left.
  auto left = std::make_shared<std::atomic<int>>(100);
  exchange->on_drained([e = exchange.get(), left] {
    const int n = (*left)--;
    if (n > 0) e->write(event(n));
    if (n == 0) e->end_stream();
  });
  exchange->begin_stream(event_stream());
  const RawResponse r = client.response();
  EXPECT_TRUE(r.complete);
  EXPECT_TRUE(r.body.starts_with(event(100) + event(99)));
  EXPECT_TRUE(r.body.ends_with(event(1)));
}

TEST(StalledReader, IsCutOffAndAReaderThatCrawlsIsNot) {
  ServerOptions options = any_port();
  options.stream_stall = std::chrono::seconds(1);
  TestServer server(options);
  RawClient stalled = server.client(4096), crawling = server.client(32 << 10), deaf = server.client(4096);
  std::vector<std::shared_ptr<Exchange>> exchanges;
  for (RawClient* c : {&stalled, &crawling, &deaf}) {
    c->get("/stream");
    exchanges.push_back(server.next());
    ASSERT_TRUE(exchanges.back());
  }
  const Gone stalled_gone(*exchanges[0]), crawling_gone(*exchanges[1]), deaf_gone(*exchanges[2]);
  const auto begin = std::chrono::steady_clock::now();
  const std::string much(4 << 20, 'x');
  exchanges[0]->begin_stream(event_stream());
  exchanges[0]->write(much);
  exchanges[1]->begin_stream(event_stream());
  exchanges[1]->write(much);
  exchanges[2]->respond({.body = much});  // also an answer in one piece
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    crawling.skip(48 << 10);
  }
  EXPECT_EQ(*crawling_gone.count, 0);
  EXPECT_GT(exchanges[1]->pending_bytes(), size_t{0}) << "too fast for this test";
  EXPECT_TRUE(stalled_gone.within(5000));
  EXPECT_TRUE(deaf_gone.within(5000));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(900));
}

TEST(ManyStreams, EachGetsAllBytesInOrder) {
  constexpr int kStreams = 500, kEvents = 40;
  TestServer server;
  std::vector<RawClient> clients;
  std::vector<std::shared_ptr<Exchange>> exchanges;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(server.client());
    clients.back().get("/stream/" + std::to_string(i));
    exchanges.push_back(server.next());
    ASSERT_TRUE(exchanges.back());
    exchanges.back()->begin_stream(event_stream());
  }
  std::thread engine([&] {
    for (int n = 0; n < kEvents; ++n)
      for (int i = 0; i < kStreams; ++i) exchanges[i]->write(event(i * 1000 + n));
    for (const auto& e : exchanges) e->end_stream();
  });
  for (int i = 0; i < kStreams; ++i) {
    std::string expected;
    for (int n = 0; n < kEvents; ++n) expected += event(i * 1000 + n);
    const RawResponse r = clients[static_cast<size_t>(i)].response();
    ASSERT_TRUE(r.complete);
    ASSERT_EQ(r.body, expected) << i;
  }
  engine.join();
}

TEST(Post, TasksRunOneAtATimeAndInOrder) {
  ServerOptions options = any_port();
  options.io_threads = 2;
  TestServer server(options);
  RawClient client = server.client();
  client.get("/stream");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  exchange->begin_stream(event_stream());
  constexpr int kThreads = 3, kTasks = 2000;
  std::vector<std::vector<int>> order(kThreads);
  int inside = 0;  // unguarded on purpose
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        exchange->post([&, t, i] {
          EXPECT_EQ(++inside, 1);
          order[static_cast<size_t>(t)].push_back(i);
          exchange->write("x");
          --inside;
        });
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::promise<void> last;
  exchange->post([&] {
    exchange->end_stream();
    exchange->post([&] { last.set_value(); });
  });
  EXPECT_EQ(client.response().body, std::string(kThreads * kTasks, 'x'));
  last.get_future().get();
  for (const std::vector<int>& o : order) EXPECT_TRUE(std::is_sorted(o.begin(), o.end()) && o.size() == kTasks);
}

TEST(Post, WorksAfterTheAnswerAndAfterTheClient) {
  TestServer server;
  RawClient client = server.client();
  client.get("/hold");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  exchange->respond({});
  client.response();
  client.close();
  EXPECT_TRUE(eventually([&] { return server.server().connections() == 0; }));
  std::promise<void> ran;
  exchange->post([&] { ran.set_value(); });
  EXPECT_EQ(ran.get_future().wait_for(std::chrono::seconds(2)), std::future_status::ready);
}

}  // namespace
}  // namespace tutti::http
