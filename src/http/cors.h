// Cross-origin rules: exact origins, or "*" for any; never credentials.
#pragma once

#include <optional>

#include "http/server.h"

namespace tutti::http {

// Headers that let the request's origin read the answer; none if the request names no origin or one that is not
// allowed.
Headers cors_headers(const Request& request, const std::vector<std::string>& allowed);

// The answer to a preflight request; nothing if the request is none, or if CORS is off.
std::optional<Response> preflight(const Request& request, const std::vector<std::string>& allowed);

}  // namespace tutti::http
