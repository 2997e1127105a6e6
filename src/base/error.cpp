#include "base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti {

LoadError::LoadError(const std::string& where, const std::vector<std::string>& problems)
    : std::runtime_error(fmt::format("{}: {} problem{}\n  {}", where, problems.size(), problems.size() == 1 ? "" : "s",
                                     fmt::join(problems, "\n  "))) {}

void check_failed(const char* condition, const char* file, int line) {
  throw InvariantError(fmt::format("broken invariant: {} ({}:{})", condition, file, line));
}

}  // namespace tutti
