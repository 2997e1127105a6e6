#include "api/errors.h"

#include <fmt/format.h>

#include "api/json.h"
#include "api/service.h"

namespace tutti::api {
namespace {

ApiError bad_request(const char* code, std::string param, std::string message) {
  return {.code = code, .message = std::move(message), .param = std::move(param)};
}

// What http/ reports before a request exists.
struct EarlyError {
  int status;
  const char* type;
  const char* code;
};
constexpr EarlyError kEarlyErrors[] = {
    {408, "timeout_error", "request_timeout"},           {413, "invalid_request_error", "request_too_large"},
    {431, "invalid_request_error", "headers_too_large"}, {500, "server_error", "internal_error"},
    {503, "overloaded_error", "server_loading"},
};

}  // namespace

ApiError invalid_json(std::string message) {
  return {.code = "invalid_json", .message = "The body could not be read: " + message + "."};
}

ApiError missing_parameter(std::string param) {
  auto message = fmt::format("'{}' is required.", param);
  return bad_request("missing_required_parameter", std::move(param), std::move(message));
}

ApiError invalid_type(std::string param, std::string message) {
  return bad_request("invalid_type", std::move(param), std::move(message));
}

ApiError invalid_value(std::string param, std::string message) {
  return bad_request("invalid_value", std::move(param), std::move(message));
}

ApiError unknown_parameter(std::string param) {
  auto message = fmt::format("'{}' is not a parameter that this endpoint knows.", param);
  return bad_request("unknown_parameter", std::move(param), std::move(message));
}

ApiError unsupported_parameter(std::string param, std::string message) {
  return bad_request("unsupported_parameter", std::move(param), std::move(message));
}

ApiError unsupported_value(std::string param, std::string message) {
  return bad_request("unsupported_value", std::move(param), std::move(message));
}

ApiError unsupported_media(std::string param) {
  auto message = fmt::format("'{}': this server takes text only, neither images nor video.", param);
  return bad_request("unsupported_media", std::move(param), std::move(message));
}

ApiError context_length_exceeded(std::string param, size_t prompt_tokens, int max_model_len) {
  return bad_request(
      "context_length_exceeded", std::move(param),
      fmt::format("This model's maximum context length is {} tokens. The prompt has {} tokens, which leaves no "
                  "room for an answer.",
                  max_model_len, prompt_tokens));
}

ApiError template_error(std::string message) {
  return bad_request("template_error", "messages", "The chat template refuses the messages: " + message);
}

ApiError model_not_found(const std::string& model) {
  return {.status = 404,
          .code = "model_not_found",
          .message = fmt::format("The model '{}' is not served here; GET /v1/models lists the names.", model),
          .param = "model"};
}

ApiError overloaded(std::string code, std::string message, int retry_after_s) {
  return {.status = 503,
          .type = "overloaded_error",
          .code = std::move(code),
          .message = std::move(message),
          .retry_after_s = std::max(1, retry_after_s)};
}

ApiError engine_error(std::string code, std::string message) {
  if (code == "server_draining") return overloaded("server_draining", "The server is shutting down.", 10);
  if (code == "timeout") {
    return {.status = 504, .type = "timeout_error", .code = "timeout", .message = std::move(message)};
  }
  if (code.empty()) code = "internal_error";
  if (message.empty()) message = "The engine could not finish this request.";
  return {.status = 500, .type = "server_error", .code = std::move(code), .message = std::move(message)};
}

std::string error_body(const ApiError& error, std::string_view extra) {
  std::string out = R"({"error":{"message":)";
  append_string(out, lossy_utf8(error.message));
  out += R"(,"type":)";
  append_string(out, error.type);
  out += R"(,"param":)";
  if (error.param) {
    append_string(out, lossy_utf8(*error.param));
  } else {
    out += "null";
  }
  out += R"(,"code":)";
  if (error.code.empty()) {
    out += "null";
  } else {
    append_string(out, error.code);
  }
  out += '}';
  out += extra;
  out += '}';
  return out;
}

http::Response to_response(const ApiError& error, std::string_view extra) {
  http::Response response{.status = error.status, .body = error_body(error, extra)};
  if (error.retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

http::Response error_response(int status, const std::string& message) {
  ApiError error{.status = status, .code = "bad_request", .message = message};
  for (const EarlyError& early : kEarlyErrors) {
    if (early.status == status) error.type = early.type, error.code = early.code;
  }
  return to_response(error);
}

}  // namespace tutti::api
