// Errors that cross rooms. Kernels assert, ops throw std::invalid_argument, loading throws LoadError, the API returns
// Result.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace tutti {

// A checkpoint, tokenizer or template that can't be used. what() names the file and every fault found, one per line.
class LoadError : public std::runtime_error {
 public:
  explicit LoadError(const std::string& message) : std::runtime_error(message) {}
  // "<where>: N problems" and the problems, one per line.
  LoadError(const std::string& where, const std::vector<std::string>& problems);
};

// A command line or an option that can't be used (exit code 2).
class OptionError : public std::runtime_error {
 public:
  explicit OptionError(const std::string& message) : std::runtime_error(message) {}
};

// A broken invariant: a bug of ours. The engine's error boundary catches it, so that one step is lost and not the
// server.
class InvariantError : public std::logic_error {
 public:
  explicit InvariantError(const std::string& message) : std::logic_error(message) {}
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace tutti

#define TUTTI_CHECK(condition)                                               \
  do {                                                                       \
    if (!(condition)) ::tutti::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
