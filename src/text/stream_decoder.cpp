#include "text/stream_decoder.h"

#include <algorithm>
#include <utility>

namespace tutti::text {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  size_t size = 1;       // bytes that belong together: a character, or the part of one that is broken
  bool valid = false;    // a whole character
  bool partial = false;  // may become one with more bytes
};

struct Lead {
  size_t size;              // of the character; 0: no lead byte
  unsigned char low, high;  // allowed second bytes (no overlong forms, no surrogates, nothing above U+10FFFF)
};

Lead lead_of(unsigned char c) {
  if (c < 0x80) return {1, 0, 0};
  if (c < 0xC2) return {0, 0, 0};
  if (c < 0xE0) return {2, 0x80, 0xBF};
  if (c < 0xF0)
    return {3, static_cast<unsigned char>(c == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(c == 0xED ? 0x9F : 0xBF)};
  if (c < 0xF5)
    return {4, static_cast<unsigned char>(c == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(c == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

// The sequence at the start of bytes (not empty). A broken one ends before the first byte that can't continue it (the
// Unicode standard's maximal subpart, which is what Python and Rust replace by one U+FFFD).
Sequence sequence_at(std::string_view bytes) {
  Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  if (lead.size == 0) return {};
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {.size = i, .partial = true};
    unsigned char c = static_cast<unsigned char>(bytes[i]);
    bool fits = i == 1 ? c >= lead.low && c <= lead.high : (c & 0xC0) == 0x80;
    if (!fits) return {.size = i};
  }
  return {.size = lead.size, .valid = true};
}

}  // namespace

std::string Utf8Assembler::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    Sequence s = sequence_at(rest);
    if (s.partial) break;
    out += s.valid ? rest.substr(0, s.size) : kReplacement;
    rest.remove_prefix(s.size);
  }
  pending_ = std::string(rest);
  return out;
}

std::string Utf8Assembler::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_in_output)
    : stops_(std::move(stops)), include_(include_in_output) {
  std::erase(stops_, "");
  // Longest first: of several that end at the same byte the first found is the longest.
  std::sort(stops_.begin(), stops_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::string StopMatcher::push(std::string_view text) {
  if (match_) return {};
  if (stops_.empty()) return std::string(text);
  size_t begin = held_.size();  // what was held before has been looked at
  held_ += text;
  for (size_t end = begin + 1; end <= held_.size(); ++end) {
    std::string_view seen(held_.data(), end);
    auto stop = std::find_if(stops_.begin(), stops_.end(), [&](const auto& s) { return seen.ends_with(s); });
    if (stop == stops_.end()) continue;
    match_ = StopMatch{*stop};
    std::string out = held_.substr(0, include_ ? end : end - stop->size());
    held_.clear();
    return out;
  }
  size_t keep = open_suffix();
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

size_t StopMatcher::open_suffix() const {
  for (size_t n = std::min(held_.size(), longest_ - 1); n > 0; --n) {
    std::string_view suffix(held_.data() + held_.size() - n, n);
    auto begins = [&](const std::string& stop) {
      return stop.size() > n && std::string_view(stop).starts_with(suffix);
    };
    if (std::any_of(stops_.begin(), stops_.end(), begins)) return n;
  }
  return 0;
}

std::string StopMatcher::finish() {
  return std::exchange(held_, {});
}

}  // namespace tutti::text
