#include "base/env.h"

#include <cstdlib>

namespace tutti::env {
namespace {

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace

std::optional<std::string> isa() {
  return get("TUTTI_ISA");
}
std::optional<std::string> ops() {
  return get("TUTTI_OPS");
}
std::optional<std::string> api_key() {
  return get("TUTTI_API_KEY");
}
bool is_set(const char* name) {
  return get(name).has_value();
}

}  // namespace tutti::env
