#include <fmt/format.h>

#include "http/server.h"

namespace tutti::http {
namespace {

// scheme://host or scheme://host:port, as browsers send it.
bool is_origin(const std::string& text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string::npos || scheme == 0 || scheme + 3 == text.size()) return false;
  return text.find_first_of("/?# ,", scheme + 3) == std::string::npos;
}

}  // namespace

std::vector<std::string> ServerOptions::validate() const {
  std::vector<std::string> problems;
  const auto check = [&](bool good, std::string problem) {
    if (!good) problems.push_back(std::move(problem));
  };
  check(!host.empty(), "host: empty");
  check(port >= 0 && port <= 65535, fmt::format("port: {} is not in 0..65535", port));
  check(io_threads >= 1 && io_threads <= 64, fmt::format("io_threads: {} is not in 1..64", io_threads));
  check(max_body_bytes >= 1, "max_body_bytes: 0");
  check(max_header_bytes >= 1024 && max_header_bytes <= (size_t{16} << 20),
        fmt::format("max_header_bytes: {} is not in 1 KiB..16 MiB", max_header_bytes));
  check(max_connections >= 1, fmt::format("max_connections: {} is not positive", max_connections));
  for (const auto& [name, value] : {std::pair{"header_timeout", header_timeout},
                                    {"body_timeout", body_timeout},
                                    {"idle_timeout", idle_timeout},
                                    {"stream_stall", stream_stall}})
    check(value.count() > 0, fmt::format("{}: {} s is not positive", name, value.count()));
  for (const std::string& origin : allowed_origins)
    check(origin == "*" || is_origin(origin),
          fmt::format("allowed_origins: '{}' is neither scheme://host[:port] nor *", origin));
  return problems;
}

}  // namespace tutti::http
