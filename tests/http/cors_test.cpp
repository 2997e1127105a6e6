#include "http/cors.h"

#include <gtest/gtest.h>

#include "http/test_server.h"

namespace tutti::http {
namespace {

Request from(std::string origin) {
  Request r;
  r.method = "GET";
  r.headers = {{"origin", std::move(origin)}};
  return r;
}

std::string allowed_to(const Headers& headers) {
  for (const auto& [name, value] : headers)
    if (name == "Access-Control-Allow-Origin") return value;
  return "";
}

TEST(Cors, OffByDefault) {
  EXPECT_TRUE(cors_headers(from("https://a.example"), {}).empty());
  Request r = from("https://a.example");
  r.method = "OPTIONS";
  r.headers.emplace_back("access-control-request-method", "POST");
  EXPECT_FALSE(preflight(r, {}));
}

TEST(Cors, OriginsMatchExactly) {
  const std::vector<std::string> allowed = {"https://a.example", "http://localhost:3000"};
  EXPECT_EQ(allowed_to(cors_headers(from("https://a.example"), allowed)), "https://a.example");
  EXPECT_EQ(allowed_to(cors_headers(from("http://localhost:3000"), allowed)), "http://localhost:3000");
  for (const char* other : {"http://a.example", "https://a.example.evil", "https://A.example", "null", ""})
    EXPECT_EQ(allowed_to(cors_headers(from(other), allowed)), "") << other;
}

TEST(Cors, StarIsForAnyAndNeverWithCredentials) {
  const Headers headers = cors_headers(from("https://b.example"), {"*"});
  EXPECT_EQ(allowed_to(headers), "*");
  for (const auto& [name, value] : headers) EXPECT_NE(name, "Access-Control-Allow-Credentials");
}

TEST(Cors, PreflightIsAnsweredWithoutTheHandler) {
  ServerOptions options = any_port();
  options.allowed_origins = {"https://a.example"};
  TestServer server(options);
  RawClient client = server.client();
  const std::string tail =
      "\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, x-y\r\n\r\n";
  client.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\nOrigin: https://a.example" + tail);
  RawResponse r = client.response();
  EXPECT_EQ(r.status, 204);
  EXPECT_EQ(r.headers["Access-Control-Allow-Origin"], "https://a.example");
  EXPECT_EQ(r.headers["Access-Control-Allow-Headers"], "authorization, x-y");
  EXPECT_NE(r.headers["Access-Control-Allow-Methods"].find("POST"), std::string::npos);
  EXPECT_EQ(r.headers["Vary"], "Origin");

  client.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\nOrigin: https://evil.example" + tail);
  r = client.response();
  EXPECT_EQ(r.status, 403);
  EXPECT_EQ(r.headers.count("Access-Control-Allow-Origin"), 0u);
  EXPECT_EQ(server.waiting(), 0u);

  client.send("GET /echo HTTP/1.1\r\nHost: t\r\nOrigin: https://a.example\r\n\r\n");
  r = client.response();
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers["Access-Control-Allow-Origin"], "https://a.example");
}

TEST(Cors, OtherOptionsRequestsReachTheHandler) {
  TestServer server;
  RawClient client = server.client();
  client.send("OPTIONS /echo HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.response().body, "OPTIONS /echo [] ");
}

}  // namespace
}  // namespace tutti::http
