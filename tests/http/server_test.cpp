#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "http/test_server.h"

namespace tutti::http {
namespace {

using testing::HasSubstr;

TEST(Server, AnswersARequest) {
  TestServer server;
  RawClient client = server.client();
  client.send("GET /echo/a%20b?q=1 HTTP/1.1\r\nHost: t\r\nX-TEST:  padded \r\n\r\n");
  RawResponse r = client.response();
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.body, "GET /echo/a b [q=1] ");
  EXPECT_EQ(r.headers["X-Test"], "padded");
  EXPECT_EQ(r.headers["Content-Type"], "text/plain");
  EXPECT_EQ(r.headers.count("Connection"), 0u);
}

TEST(Server, TheRequestKnowsItsClient) {
  TestServer server;
  RawClient client = server.client();
  client.get("/hold");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  EXPECT_EQ(exchange->request().peer, "127.0.0.1");
  EXPECT_FALSE(exchange->closed());
}

TEST(Server, KeepsTheConnection) {
  TestServer server;
  RawClient client = server.client();
  for (int i = 0; i < 20; ++i) {
    client.post("/echo", std::to_string(i));
    ASSERT_EQ(client.response().body, "POST /echo [] " + std::to_string(i));
  }
  EXPECT_EQ(server.server().connections(), 1);
  client.close();
  EXPECT_TRUE(eventually([&] { return server.server().connections() == 0; }));
}

TEST(Server, ClosesWhenAsked) {
  TestServer server;
  RawClient client = server.client();
  client.send("GET /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  RawResponse r = client.response();
  EXPECT_EQ(r.headers["Connection"], "close");
  EXPECT_EQ(r.body, "GET /echo [] ");
  EXPECT_TRUE(client.closed_within(1000));
}

TEST(Server, PipelinedRequestsAreServedInOrder) {
  TestServer server;
  RawClient client = server.client();
  std::string all;
  for (int i = 0; i < 50; ++i)
    all += "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n" + std::to_string(10 + i);
  client.send(all);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(client.response().body, "POST /echo [] " + std::to_string(10 + i));
}

TEST(Server, APipelinedRequestWaitsForTheOneBefore) {
  TestServer server;
  RawClient client = server.client();
  client.get("/hold/first");
  client.get("/hold/second");
  const auto first = server.next();
  ASSERT_TRUE(first);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(server.waiting(), 0u);
  first->respond({.body = "one"});
  EXPECT_EQ(client.response().body, "one");
  const auto second = server.next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->request().path, "/hold/second");
  second->respond({.body = "two"});
  EXPECT_EQ(client.response().body, "two");
}

TEST(Server, RequestInTinyPieces) {
  TestServer server;
  RawClient client = server.client();
  for (char c : std::string("\r\n\r\nPOST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc")) {
    client.send(std::string(1, c));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(client.response().body, "POST /echo [] abc");
}

TEST(Server, HeadHasTheSameHeadersAndNoBody) {
  TestServer server;
  RawClient client = server.client();
  client.send("HEAD /echo HTTP/1.1\r\nHost: t\r\n\r\n");
  RawResponse r = client.response(true);
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers["Content-Length"], std::to_string(std::string("GET /echo [] ").size()));
  client.get("/echo");  // the connection is where it should be
  EXPECT_EQ(client.response().body, "GET /echo [] ");

  client.send("HEAD /stream HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  exchange->begin_stream(event_stream());
  exchange->write("never seen");
  exchange->end_stream();
  EXPECT_EQ(client.response(true).headers["Transfer-Encoding"], "chunked");
  client.get("/echo");
  EXPECT_EQ(client.response().body, "GET /echo [] ");
}

TEST(Server, ChunkedBody) {
  TestServer server;
  RawClient client = server.client();
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n4;ext=1\r\nabcd\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  client.send("a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n");
  EXPECT_EQ(client.response().body, "POST /echo [] abcd0123456789");
  client.get("/echo");
  EXPECT_EQ(client.response().body, "GET /echo [] ");
}

TEST(Server, ExpectContinueIsAnsweredBeforeTheBody) {
  TestServer server;
  RawClient client = server.client();
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_EQ(client.response().body, "POST /echo [] abc");
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: miracles\r\n\r\n");
  EXPECT_EQ(client.response().status, 417);
}

TEST(Server, Http10GetsALengthAndAClosedConnection) {
  TestServer server;
  RawClient client = server.client();
  client.send("GET /echo HTTP/1.0\r\n\r\n");
  RawResponse r = client.response();
  EXPECT_EQ(r.headers["Content-Length"], std::to_string(r.body.size()));
  EXPECT_TRUE(client.closed_within(1000));

  RawClient kept = server.client();
  for (int i = 0; i < 2; ++i) {
    kept.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(kept.response().headers["Connection"], "keep-alive");
  }
}

TEST(Server, AHandlerThatThrowsClosesTheConnection) {
  TestServer server;
  RawClient client = server.client();
  client.get("/throw");
  EXPECT_TRUE(client.closed_within(1000));
  RawClient other = server.client();
  other.get("/echo");
  EXPECT_EQ(other.response().status, 200);
}

TEST(Server, AnswersAfterTheFirstAreIgnored) {
  TestServer server;
  RawClient client = server.client();
  client.get("/hold");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  exchange->write("too early");
  exchange->end_stream();
  exchange->respond({.body = "one"});
  exchange->respond({.body = "two"});
  exchange->begin_stream({});
  exchange->write("three");
  EXPECT_EQ(client.response().body, "one");
  client.get("/echo");
  EXPECT_EQ(client.response().body, "GET /echo [] ");
}

TEST(Server, LargeBodiesBothWays) {
  TestServer server;
  RawClient client = server.client();
  std::string body(8 << 20, 'x');
  for (size_t i = 0; i < body.size(); i += 4099) body[i] = static_cast<char>('a' + i % 26);
  std::thread sender([&] { client.post("/echo", body); });
  sender.join();
  EXPECT_EQ(client.response().body, "POST /echo [] " + body);
}

TEST(Server, TooManyConnectionsAreToldSo) {
  ServerOptions options = any_port();
  options.max_connections = 3;
  TestServer server(options);
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(server.client());
    clients.back().get("/echo");
    ASSERT_EQ(clients.back().response().status, 200);
  }
  RawClient late = server.client();
  RawResponse r = late.response();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers["Connection"], "close");
  late.close();
  clients[0].close();
  EXPECT_TRUE(eventually([&] { return server.server().connections() == 2; }));
  RawClient next = server.client();
  next.get("/echo");
  EXPECT_EQ(next.response().status, 200);
}

TEST(Server, AnAddressInUseIsAnOptionError) {
  TestServer server;
  ServerOptions options = any_port();
  options.port = server.port();
  Server second(options, [](auto) {}, [](int, std::string) { return Response{}; });
  try {
    second.start();
    FAIL() << "bound a port twice";
  } catch (const OptionError& e) {
    EXPECT_THAT(e.what(), HasSubstr("127.0.0.1:" + std::to_string(server.port())));
    EXPECT_THAT(e.what(), HasSubstr("in use"));
  }
}

TEST(Server, AHostThatIsNotOursIsAnOptionError) {
  ServerOptions options = any_port();
  options.host = "192.0.2.1";
  Server server(options, [](auto) {}, [](int, std::string) { return Response{}; });
  EXPECT_THROW(server.start(), OptionError);
}

TEST(Server, StopAcceptingServesWhatIsThereAndClosesIt) {
  TestServer server;
  RawClient client = server.client();
  client.get("/hold");
  const auto exchange = server.next();
  ASSERT_TRUE(exchange);
  server.server().stop_accepting();
  EXPECT_TRUE(eventually([&] { return !server.client().connected(); }));
  exchange->respond({.body = "still"});
  RawResponse r = client.response();
  EXPECT_EQ(r.body, "still");
  EXPECT_EQ(r.headers["Connection"], "close");
  EXPECT_TRUE(client.closed_within(1000));
}

TEST(Server, StopsWithOpenConnections) {
  auto server = std::make_unique<TestServer>();
  RawClient idle = server->client(), half = server->client(), holding = server->client(), streaming = server->client();
  half.send("POST /echo HTTP/1.1\r\nContent-Le");
  holding.get("/hold");
  const auto held = server->next();
  streaming.get("/stream");
  const auto stream = server->next();
  ASSERT_TRUE(held && stream);
  stream->begin_stream(event_stream());
  stream->write("data: 1\n\n");
  streaming.read_until("data: 1\n\n");
  std::atomic<int> gone{0};
  held->on_closed([&] { ++gone; });
  stream->on_closed([&] { ++gone; });
  const auto begin = std::chrono::steady_clock::now();
  server->server().stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(gone, 2);
  EXPECT_EQ(server->server().connections(), 0);
  for (RawClient* c : {&idle, &half, &holding, &streaming}) EXPECT_TRUE(c->closed_within(1000));
  server.reset();
  // Whoever still holds an exchange may use it.
  EXPECT_TRUE(stream->closed());
  stream->write("nobody");
  stream->post([] { ADD_FAILURE() << "ran after the server had stopped"; });
  stream->end_stream();
  held->respond({});
}

TEST(Server, SeveralIoThreads) {
  ServerOptions options = any_port();
  options.io_threads = 3;
  TestServer server(options);
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      RawClient client = server.client();
      for (int i = 0; i < 100; ++i) {
        client.post("/echo", std::to_string(t * 1000 + i));
        good += client.response().body == "POST /echo [] " + std::to_string(t * 1000 + i);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 400);
}

}  // namespace
}  // namespace tutti::http
