// Token ids to text as they come: whole UTF-8 characters only, and nothing that might yet be part of a stop string.
// One per choice; one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tutti::text {

// Bytes to whole characters: holds back an incomplete sequence; invalid bytes become U+FFFD.
class Utf8Assembler {
 public:
  std::string push(std::string_view bytes);
  std::string finish();  // what is left over, as U+FFFD

 private:
  std::string pending_;
};

struct StopMatch {
  std::string stop;
};

// Looks for stop strings byte by byte: the match that ends first wins, several ending at the same byte: the longest.
class StopMatcher {
 public:
  StopMatcher(std::vector<std::string> stops, bool include_in_output);
  // Text that is now certain not to be (part of) a stop string. After a match, everything further is dropped.
  std::string push(std::string_view text);
  std::string finish();  // what was held back
  const std::optional<StopMatch>& match() const { return match_; }

 private:
  size_t open_suffix() const;  // bytes at the end of held_ that might be the beginning of a stop string

  std::vector<std::string> stops_;  // longest first
  bool include_;
  size_t longest_ = 0;
  std::string held_;
  std::optional<StopMatch> match_;
};

}  // namespace tutti::text
