// The log: one line per event to stderr, request ids in the line, never prompt text and never keys.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tutti::log {

enum class Level { debug, info, warn, error, off };  // off: for set_level() only

void write(Level level, std::string_view line);
void set_level(Level level);

template <class... Args>
void debug(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::debug, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::info, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::warn, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::error, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace tutti::log
