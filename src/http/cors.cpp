#include "http/cors.h"

#include <algorithm>

namespace tutti::http {
namespace {

// What Access-Control-Allow-Origin says, or empty.
std::string granted(std::string_view origin, const std::vector<std::string>& allowed) {
  if (origin.empty()) return {};
  if (std::find(allowed.begin(), allowed.end(), origin) != allowed.end()) return std::string(origin);
  return std::find(allowed.begin(), allowed.end(), "*") != allowed.end() ? "*" : "";
}

}  // namespace

Headers cors_headers(const Request& request, const std::vector<std::string>& allowed) {
  if (allowed.empty()) return {};
  Headers headers = {{"Vary", "Origin"}};
  if (std::string origin = granted(request.header("origin"), allowed); !origin.empty()) {
    headers.emplace_back("Access-Control-Allow-Origin", std::move(origin));
    headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Request-Id, Retry-After, X-Tutti-Ignored");
  }
  return headers;
}

std::optional<Response> preflight(const Request& request, const std::vector<std::string>& allowed) {
  if (allowed.empty() || request.method != "OPTIONS" || request.header("origin").empty() ||
      request.header("access-control-request-method").empty())
    return std::nullopt;
  Response response;
  response.status = 204;
  response.content_type.clear();
  if (granted(request.header("origin"), allowed).empty()) {
    response.status = 403;
    return response;
  }
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS");
  if (const std::string_view wanted = request.header("access-control-request-headers"); !wanted.empty())
    response.headers.emplace_back("Access-Control-Allow-Headers", std::string(wanted));
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

}  // namespace tutti::http
