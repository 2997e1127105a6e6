#include "api/errors.h"

#include <gtest/gtest.h>

#include "api/json.h"
#include "api/service.h"

namespace tutti::api {
namespace {

struct Case {
  ApiError error;
  int status;
  const char* type;
  const char* code;
  Json param;
};

TEST(ApiError, has_the_openai_shape) {
  const Case cases[] = {
      {invalid_json("x"), 400, "invalid_request_error", "invalid_json", nullptr},
      {missing_parameter("messages"), 400, "invalid_request_error", "missing_required_parameter", "messages"},
      {invalid_type("n", "x"), 400, "invalid_request_error", "invalid_type", "n"},
      {invalid_value("n", "x"), 400, "invalid_request_error", "invalid_value", "n"},
      {unknown_parameter("a.b[0]"), 400, "invalid_request_error", "unknown_parameter", "a.b[0]"},
      {unsupported_parameter("tools", "x"), 400, "invalid_request_error", "unsupported_parameter", "tools"},
      {unsupported_value("store", "x"), 400, "invalid_request_error", "unsupported_value", "store"},
      {unsupported_media("messages[0].content[0]"), 400, "invalid_request_error", "unsupported_media",
       "messages[0].content[0]"},
      {template_error("x"), 400, "invalid_request_error", "template_error", "messages"},
      {context_length_exceeded("messages", 9, 8), 400, "invalid_request_error", "context_length_exceeded", "messages"},
      {model_not_found("m"), 404, "invalid_request_error", "model_not_found", "model"},
      {overloaded("server_overloaded", "x", 3), 503, "overloaded_error", "server_overloaded", nullptr},
      {engine_error("numerical_error", "x"), 500, "server_error", "numerical_error", nullptr},
      {engine_error("", ""), 500, "server_error", "internal_error", nullptr},
      {engine_error("server_draining", ""), 503, "overloaded_error", "server_draining", nullptr},
      {engine_error("timeout", "late"), 504, "timeout_error", "timeout", nullptr},
  };
  for (const Case& c : cases) {
    const http::Response response = to_response(c.error);
    EXPECT_EQ(response.status, c.status) << c.code;
    EXPECT_EQ(response.content_type, "application/json");
    const Json body = Json::parse(response.body);
    ASSERT_EQ(body.size(), 1u);
    const Json& error = body["error"];
    EXPECT_EQ(error["type"], c.type) << c.code;
    EXPECT_EQ(error["code"], c.code);
    EXPECT_EQ(error["param"], c.param) << c.code;
    EXPECT_FALSE(error["message"].get<std::string>().empty()) << c.code;
  }
}

TEST(ApiError, names_the_context_length) {
  EXPECT_NE(context_length_exceeded("messages", 600, 512).message.find("maximum context length is 512 tokens"),
            std::string::npos);
}

TEST(ApiError, says_when_to_come_back) {
  const auto response = to_response(overloaded("server_overloaded", "x", 0));
  EXPECT_EQ(response.headers, (http::Headers{{"Retry-After", "1"}}));
}

TEST(ApiError, carries_more_beside_the_error) {
  const Json body =
      Json::parse(error_body(engine_error("internal_error", "a \"quote\""), R"(,"usage":{"prompt_tokens":3})"));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(body["error"]["message"], "a \"quote\"");
}

TEST(ErrorResponse, covers_what_never_became_a_request) {
  for (const auto& [status, code] : std::vector<std::pair<int, std::string>>{{400, "bad_request"},
                                                                             {408, "request_timeout"},
                                                                             {413, "request_too_large"},
                                                                             {431, "headers_too_large"},
                                                                             {503, "server_loading"}}) {
    const auto response = error_response(status, "because");
    EXPECT_EQ(response.status, status);
    const Json body = Json::parse(response.body);
    EXPECT_EQ(body["error"]["code"], code);
    EXPECT_EQ(body["error"]["message"], "because");
  }
}

}  // namespace
}  // namespace tutti::api
