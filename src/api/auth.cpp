#include "api/auth.h"

#include <algorithm>

namespace tutti::api {
namespace {

std::string_view bearer(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  if (header.size() < kScheme.size()) return {};
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  if (!std::equal(kScheme.begin(), kScheme.end(), header.begin(), [&](char k, char h) { return same(h, k); }))
    return {};
  header.remove_prefix(kScheme.size());
  while (header.starts_with(' ')) header.remove_prefix(1);
  while (header.ends_with(' ')) header.remove_suffix(1);
  return header;
}

}  // namespace

bool equal_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

MaybeError check_key(const http::Request& request, const std::vector<std::string>& keys) {
  if (keys.empty()) return std::nullopt;
  std::string_view given = bearer(request.header("authorization"));
  if (given.empty()) given = request.header("x-api-key");
  bool known = false;
  for (const auto& key : keys) known |= equal_secret(given, key);
  if (known && !given.empty()) return std::nullopt;
  return ApiError{.status = 401,
                  .type = "authentication_error",
                  .code = "invalid_api_key",
                  .message = given.empty() ? "An API key is required: Authorization: Bearer KEY, or x-api-key: KEY."
                                           : "The API key is not known."};
}

}  // namespace tutti::api
