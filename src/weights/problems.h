// Everything wrong with one checkpoint, collected so that it is reported at once.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tutti::weights {

// A name or value from a file as it may be printed: control characters escaped, cut after 200 bytes.
inline std::string printable(std::string_view text) {
  constexpr size_t kMax = 200;
  std::string out;
  for (const char c : text.substr(0, kMax)) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u == 0x7f) {
      out += fmt::format("\\x{:02x}", u);
    } else {
      out += c;
    }
  }
  return text.size() > kMax ? out + "…" : out;
}

inline std::string printable_list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + printable(name);
  return out;
}

inline std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (const int64_t d : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(d);
  return out + "]";
}

class Problems {
 public:
  // "file: tensor: expected …, found …". Lines beyond the first 1000 are only counted.
  void add(std::string line) {
    if (lines_.size() < kMaxLines) {
      lines_.push_back(std::move(line));
    } else {
      ++more_;
    }
  }
  // Takes back what was added since count() was `count`.
  std::vector<std::string> take_since(size_t count) {
    if (count >= lines_.size()) {
      more_ = static_cast<int64_t>(count - lines_.size());
      return {};
    }
    more_ = 0;
    std::vector<std::string> taken(lines_.begin() + static_cast<std::ptrdiff_t>(count), lines_.end());
    lines_.resize(count);
    return taken;
  }
  bool empty() const { return lines_.empty(); }
  size_t count() const { return lines_.size() + static_cast<size_t>(more_); }
  const std::vector<std::string>& lines() const { return lines_; }

  // Throws LoadError(where, all lines) when there are any.
  void raise(const std::string& where) const {
    if (lines_.empty()) return;
    std::vector<std::string> all = lines_;
    if (more_ > 0) all.push_back(fmt::format("… and {} more", more_));
    throw LoadError(where, all);
  }

 private:
  static constexpr size_t kMaxLines = 1000;
  std::vector<std::string> lines_;
  int64_t more_ = 0;
};

}  // namespace tutti::weights
