// From a request to the function that answers it: routes, keys, request ids.
#include <algorithm>

#include "api/auth.h"
#include "api/endpoints.h"

namespace tutti::api {
namespace {

struct Route {
  const Endpoint* endpoint = nullptr;
  std::string allowed;  // methods of the path, for 405 and OPTIONS
  bool unsupported = false;
  std::string_view name = "other";  // bounded, for metrics
};

Route find_route(std::string_view path, std::string_view method) {
  Route route;
  const std::string_view as = method == "HEAD" ? "GET" : method;
  for (const Endpoint& endpoint : endpoints()) {
    if (!path_matches(endpoint.path, path)) continue;
    if (endpoint.method == as) route.endpoint = &endpoint;
    route.name = endpoint.path;
    if (!route.allowed.empty()) route.allowed += ", ";
    route.allowed += endpoint.method == "GET" ? "GET, HEAD" : endpoint.method;
  }
  if (!route.allowed.empty()) {
    route.allowed += ", OPTIONS";
    return route;
  }
  for (const auto pattern : unsupported_paths()) {
    if (!path_matches(pattern, path)) continue;
    route.unsupported = true;
    route.name = pattern;
  }
  return route;
}

MaybeError check_access(const Core& core, const http::Request& request, const Route& route) {
  const ApiOptions& options = core.service->options;
  const Access access = route.endpoint != nullptr ? route.endpoint->access : Access::key;
  if (access == Access::open || (access == Access::metrics && !options.protect_metrics)) return std::nullopt;
  return check_key(request, options.api_keys);
}

void answer_without_endpoint(Call& call, const Route& route) {
  const http::Request& request = call.request();
  if (route.unsupported) {
    return call.fail({.status = 501,
                      .type = "unsupported_error",
                      .code = "unsupported_endpoint",
                      .message = fmt::format("{} is not offered by this server.", request.path)});
  }
  if (route.allowed.empty()) {
    return call.fail(
        {.status = 404, .code = "not_found", .message = fmt::format("There is no path {}.", request.path)});
  }
  if (request.method == "OPTIONS") {
    return call.respond({.status = 204, .headers = {{"Allow", route.allowed}}, .content_type = ""});
  }
  http::Response response =
      to_response({.status = 405,
                   .code = "method_not_allowed",
                   .message = fmt::format("{} answers {}, not {}.", request.path, route.allowed, request.method)});
  response.headers.emplace_back("Allow", route.allowed);
  call.respond(std::move(response));
}

MaybeError check_content_type(const http::Request& request) {
  std::string type(request.header("content-type").substr(0, request.header("content-type").find(';')));
  std::transform(type.begin(), type.end(), type.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  while (type.ends_with(' ')) type.pop_back();
  if (type.empty() || type == "application/json") return std::nullopt;
  return ApiError{
      .status = 415, .code = "unsupported_content_type", .message = "The content type must be application/json."};
}

void dispatch(const std::shared_ptr<Core>& core, std::shared_ptr<http::Exchange> exchange) {
  const http::Request& request = exchange->request();
  const Route route = find_route(request.path, request.method);
  const std::string_view wished = request.header("x-request-id");
  auto id = valid_request_id(wished) ? std::string(wished) : new_request_id();
  auto call = std::make_shared<Call>(std::move(exchange), std::move(id), std::string(route.name), *core->backend);
  if (const auto error = check_access(*core, request, route)) return call->fail(*error);
  if (route.endpoint == nullptr) return answer_without_endpoint(*call, route);
  if (route.endpoint->method == "POST") {
    if (const auto error = check_content_type(request)) return call->fail(*error);
  }
  route.endpoint->answer(core, std::move(call));
}

}  // namespace

http::Handler make_handler_on(std::shared_ptr<const Service> service, std::unique_ptr<Backend> backend) {
  // The handler owns the core's end: work that outlives it (a task, a session) keeps the memory, not the thread.
  struct Owner {
    explicit Owner(std::shared_ptr<Core> owned) : core(std::move(owned)) {}
    ~Owner() { core->in_flight.stop(); }
    const std::shared_ptr<Core> core;
  };
  auto owner = std::make_shared<Owner>(std::make_shared<Core>(std::move(service), std::move(backend)));
  return [owner](std::shared_ptr<http::Exchange> exchange) { dispatch(owner->core, std::move(exchange)); };
}

}  // namespace tutti::api
