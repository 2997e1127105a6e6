// What goes wrong on the client's side or ours, as the wire shows it.
#pragma once

#include <optional>
#include <string>

#include "http/server.h"

namespace tutti::api {

// One row of the error table: status, type and code go together.
struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string code;
  std::string message;               // what was found and what is allowed
  std::optional<std::string> param;  // path of the field: "messages[0].content"
  int retry_after_s = 0;             // > 0: header Retry-After
};

using MaybeError = std::optional<ApiError>;

ApiError invalid_json(std::string message);
ApiError missing_parameter(std::string param);
ApiError invalid_type(std::string param, std::string message);
ApiError invalid_value(std::string param, std::string message);
ApiError unknown_parameter(std::string param);
ApiError unsupported_parameter(std::string param, std::string message);
ApiError unsupported_value(std::string param, std::string message);
ApiError unsupported_media(std::string param);
ApiError context_length_exceeded(std::string param, size_t prompt_tokens, int max_model_len);
ApiError template_error(std::string message);
ApiError model_not_found(const std::string& model);
ApiError overloaded(std::string code, std::string message, int retry_after_s);
// A fault of the engine by its code: numerical_error, grammar_error, internal_error, server_draining, timeout.
ApiError engine_error(std::string code, std::string message);

// {"error":{"message":…,"type":…,"param":…,"code":…}}, with extra (such as ,"usage":{…}) before the last brace.
std::string error_body(const ApiError& error, std::string_view extra = "");
http::Response to_response(const ApiError& error, std::string_view extra = "");

}  // namespace tutti::api
