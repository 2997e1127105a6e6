// Requests that never become one: too large, too slow, malformed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/test_server.h"

namespace tutti::http {
namespace {

using testing::HasSubstr;

ServerOptions small() {
  ServerOptions options = any_port();
  options.max_body_bytes = 1000;
  options.max_header_bytes = 2048;
  return options;
}

// The answer to exactly these bytes; the server closes after it.
RawResponse answer_to(TestServer& server, std::string_view bytes) {
  RawClient client = server.client();
  client.send(bytes);
  RawResponse r = client.response();
  client.shut_sending();
  EXPECT_TRUE(client.closed_within(1000));
  return r;
}

TEST(Limits, BodyOfTheLargestSizeIsTaken) {
  TestServer server(small());
  RawClient client = server.client();
  client.post("/echo", std::string(1000, 'x'));
  EXPECT_EQ(client.response().status, 200);
}

TEST(Limits, LongBodyIsRefusedBeforeItIsRead) {
  TestServer server(small());
  RawResponse r = answer_to(server, "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(r.status, 413);
  EXPECT_THAT(r.body, HasSubstr("1000 bytes"));
  EXPECT_EQ(r.headers["Connection"], "close");
  r = answer_to(server,
                "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(r.status, 413);
}

TEST(Limits, LongChunkedBodyIsRefused) {
  TestServer server(small());
  std::string request = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) request += "64\r\n" + std::string(100, 'x') + "\r\n";
  EXPECT_EQ(answer_to(server, request).status, 413);
  EXPECT_EQ(
      answer_to(server, "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n").status,
      413);
}

TEST(Limits, AClientThatKeepsSendingStillReadsTheRefusal) {
  TestServer server(small());
  RawClient client = server.client();
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 20000000\r\n\r\n");
  EXPECT_TRUE(client.send(std::string(20000000, 'x')));
  EXPECT_EQ(client.response().status, 413);
}

TEST(Limits, HugeHeader) {
  TestServer server(small());
  EXPECT_EQ(answer_to(server, std::string("GET /echo HTTP/1.1\r\nX: ").append(3000, 'x') + "\r\n\r\n").status, 431);
  EXPECT_EQ(answer_to(server, std::string("GET /echo HTTP/1.1\r\nX: ").append(3000, 'x')).status, 431);
  EXPECT_EQ(answer_to(server, std::string("GET /").append(3000, 'x') + " HTTP/1.1\r\n\r\n").status, 431);
  std::string many = "GET /echo HTTP/1.1\r\n";
  for (int i = 0; i < 300; ++i) many.append("A").append(std::to_string(i)).append(": b\r\n");
  EXPECT_EQ(answer_to(server, many + "\r\n").status, 431);
  EXPECT_EQ(
      answer_to(server, std::string("GET /echo HTTP/1.1\r\nX: ").append(1800, 'x') + "\r\nConnection: close\r\n\r\n")
          .status,
      200);
}

TEST(Malformed, Is400AndReachesNoHandler) {
  TestServer server;
  for (const char* bad : {
           "\x16\x03\x01\x02\x05\x01\x05\x05\x05\r\n\r\n",                                             // TLS
           "GET\r\n\r\n",                                                                              // no target
           "GET /hold\r\n\r\n",                                                                        // no version
           "GET /hold HTTP/x\r\n\r\n",                                                                 //
           "GET /hold HTTP/1.1\r\nNo colon\r\n\r\n",                                                   //
           "GET /hold HTTP/1.1\r\nBad name: x\r\n\r\n",                                                //
           "GET /hold%zz HTTP/1.1\r\nHost: t\r\n\r\n",                                                 //
           "GET /hold%00 HTTP/1.1\r\nHost: t\r\n\r\n",                                                 //
           "POST /hold HTTP/1.1\r\nContent-Length: x\r\n\r\n",                                         //
           "POST /hold HTTP/1.1\r\nContent-Length: -1\r\n\r\n",                                        //
           "POST /hold HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",                  //
           "POST /hold HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",  // smuggling
           "POST /hold HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",                                   //
           "POST /hold HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",                 //
           "POST /hold HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",           // bad chunk size
           "POST /hold HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",  // chunk without end
       })
    EXPECT_EQ(answer_to(server, bad).status, 400) << bad;
  EXPECT_EQ(answer_to(server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status, 400);
  EXPECT_EQ(server.waiting(), 0u);
}

TEST(Malformed, HalfCloseInsideARequest) {
  TestServer server;
  for (const char* part : {"GET /hold HTTP/1.1\r\nHo", "POST /hold HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"}) {
    RawClient client = server.client();
    client.send(part);
    client.shut_sending();
    EXPECT_EQ(client.response().status, 400);
    EXPECT_TRUE(client.closed_within(1000));
  }
  RawClient silent = server.client();
  silent.shut_sending();
  EXPECT_TRUE(silent.closed_within(1000));
  EXPECT_TRUE(silent.unread().empty());
  EXPECT_EQ(server.waiting(), 0u);
}

TEST(Timeouts, SlowHeaderSlowBodyAndIdleness) {
  ServerOptions options = any_port();
  options.header_timeout = options.body_timeout = options.idle_timeout = std::chrono::seconds(1);
  TestServer server(options);
  RawClient header = server.client(), body = server.client(), idle = server.client(), used = server.client();
  used.get("/echo");
  EXPECT_EQ(used.response().status, 200);
  const auto begin = std::chrono::steady_clock::now();
  header.send("GET /hold HTTP/1.1\r\n");
  body.send("POST /hold HTTP/1.1\r\nContent-Length: 10\r\n\r\n");
  for (int i = 0; i < 8; ++i) {  // a byte now and then does not help
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    header.send("X");
    body.send("x");
  }
  EXPECT_EQ(header.response().status, 408);
  EXPECT_EQ(body.response().status, 408);
  EXPECT_TRUE(idle.closed_within(1000));
  EXPECT_TRUE(used.closed_within(1000));
  EXPECT_TRUE(idle.unread().empty());
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(took, std::chrono::milliseconds(900));
  EXPECT_LT(took, std::chrono::milliseconds(2000));
  EXPECT_EQ(server.waiting(), 0u);
}

TEST(Timeouts, DoNotTouchARequestThatIsBeingAnswered) {
  ServerOptions options = any_port();
  options.header_timeout = options.body_timeout = options.idle_timeout = options.stream_stall = std::chrono::seconds(1);
  TestServer server(options);
  RawClient waiting = server.client(), streaming = server.client();
  waiting.get("/hold");
  const auto held = server.next();
  streaming.get("/stream");
  const auto stream = server.next();
  ASSERT_TRUE(held && stream);
  stream->begin_stream(event_stream());
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  held->respond({.body = "late"});
  stream->write("late");
  stream->end_stream();
  EXPECT_EQ(waiting.response().body, "late");
  EXPECT_EQ(streaming.response().body, "late");
}

}  // namespace
}  // namespace tutti::http
