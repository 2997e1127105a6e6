#include "http/message.h"

#include <gtest/gtest.h>

namespace tutti::http {
namespace {

TEST(Target, PathIsDecodedAndTheQueryKept) {
  const auto t = parse_target("/v1/models/a%2Fb%20c%c3%A9+d?x=%20&y");
  ASSERT_TRUE(t);
  EXPECT_EQ(t->path, "/v1/models/a/b c\xc3\xa9+d");
  EXPECT_EQ(t->query, "x=%20&y");
}

TEST(Target, EveryForm) {
  EXPECT_EQ(parse_target("/")->path, "/");
  EXPECT_EQ(parse_target("*")->path, "*");
  EXPECT_EQ(parse_target("http://host:80/a?b")->path, "/a");
  EXPECT_EQ(parse_target("http://host:80/a?b")->query, "b");
  EXPECT_EQ(parse_target("http://host")->path, "/");
  EXPECT_EQ(parse_target("/a?u=http://x/y")->path, "/a");
  EXPECT_EQ(parse_target("/a?")->query, "");
}

TEST(Target, BrokenEscapesAreRefused) {
  for (const char* bad : {"/%", "/%4", "/%zz", "/a%4g", "/%00", "/a%"}) EXPECT_FALSE(parse_target(bad)) << bad;
}

TEST(Request, HeaderFindsTheFirst) {
  Request r;
  r.headers = {{"a", "1"}, {"b", "2"}, {"b", "3"}};
  EXPECT_EQ(r.header("b"), "2");
  EXPECT_EQ(r.header("c"), "");
}

TEST(Head, LengthAndConnection) {
  Response r;
  r.status = 404;
  r.body = "12345";
  r.headers = {{"X-A", "b"}, {"content-length", "9"}, {"Connection", "upgrade"}};
  const std::string head = response_head(r, {});
  EXPECT_TRUE(head.starts_with("HTTP/1.1 404 Not Found\r\nDate: "));
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  EXPECT_NE(head.find("\r\nContent-Type: application/json\r\nContent-Length: 5\r\nX-A: b\r\n"), std::string::npos);
  EXPECT_EQ(head.find("Connection"), std::string::npos);
  EXPECT_EQ(head.find("content-length"), std::string::npos);
  EXPECT_NE(response_head(r, {.keep_alive = false}).find("\r\nConnection: close\r\n"), std::string::npos);
  EXPECT_NE(response_head(r, {.version = 10}).find("\r\nConnection: keep-alive\r\n"), std::string::npos);
}

TEST(Head, FramingOfStreams) {
  Response r;
  EXPECT_NE(response_head(r, {.framing = Framing::chunked}).find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_EQ(response_head(r, {.framing = Framing::chunked}).find("Content-Length"), std::string::npos);
  const std::string plain = response_head(r, {.version = 10, .keep_alive = false, .framing = Framing::until_close});
  EXPECT_EQ(plain.find("Transfer-Encoding"), std::string::npos);
  EXPECT_EQ(plain.find("Content-Length"), std::string::npos);
}

TEST(Head, NoBodyHeadersWhereThereIsNoBody) {
  Response r;
  r.status = 204;
  const std::string head = response_head(r, {});
  EXPECT_EQ(head.find("Content-"), std::string::npos);
}

TEST(Head, ValuesCannotAddHeaders) {
  Response r;
  r.headers = {{"X-Id", "a\r\nSet-Cookie: b"}};
  EXPECT_NE(response_head(r, {}).find("X-Id: a  Set-Cookie: b\r\n"), std::string::npos);
}

TEST(Chunks, AreFramedAndNeverEmpty) {
  std::string out;
  append_chunk(out, "0123456789abcdefX");
  append_chunk(out, "");
  append_chunk(out, "y");
  EXPECT_EQ(out, "11\r\n0123456789abcdefX\r\n1\r\ny\r\n");
}

}  // namespace
}  // namespace tutti::http
