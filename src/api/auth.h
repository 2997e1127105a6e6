// API keys: `Authorization: Bearer K` or `x-api-key: K`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/errors.h"
#include "http/server.h"

namespace tutti::api {

// Equal? The time taken depends on the lengths only.
bool equal_secret(std::string_view a, std::string_view b);

// nullopt when no keys are set or the request carries one of them. Looks at every key, whichever fits.
MaybeError check_key(const http::Request& request, const std::vector<std::string>& keys);

}  // namespace tutti::api
