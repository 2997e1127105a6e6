// One stream of text out of token bytes, for the reasoning or the content of one choice: whole characters, newlines
// trimmed, stop strings cut. Keeps each token's log-probabilities with the text the token made, and drops those of
// tokens that left none.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "sample/params.h"
#include "text/stream_decoder.h"

namespace tutti::api {

struct TokenEntry {
  sample::Logprobs values;
  size_t skip = 0;          // bytes at the token's front that were trimmed away
  int64_t text_offset = 0;  // characters of the lane's text before the token
};

// Text that is final, and the entries of the tokens whose text has begun.
struct Piece {
  std::string text;
  std::vector<TokenEntry> entries;
  bool empty() const { return text.empty() && entries.empty(); }
  void clear();
  void append(Piece&& other);
};

enum class Trim {
  none,
  opening,  // all newlines at the start
  both,     // one newline at the start and one at the end
};

class TextLane {
 public:
  TextLane(Trim trim, std::vector<std::string> stops, bool include_stop);

  // The bytes of one token. look_for_stops: false while stop strings are not looked for yet (only before the first
  // true).
  void push(std::string_view bytes, const std::optional<sample::Logprobs>& values, bool look_for_stops, Piece& out);
  void finish(Piece& out);

  bool blank() const { return !opened_; }  // no text yet, trimmed newlines aside
  const std::optional<text::StopMatch>& match() const { return matcher_.match(); }

 private:
  // Positions count bytes of the assembled text: whole characters before trimming and cutting.
  struct Pending {
    TokenEntry entry;
    size_t begin = 0, end = 0;
  };

  void take(std::string text, bool look_for_stops, Piece& out);
  std::string trim(std::string text);
  void release(Piece& out);

  const Trim trim_;
  const bool has_stops_;
  text::Utf8Assembler assembler_;
  text::StopMatcher matcher_;
  size_t assembled_ = 0;  // bytes out of the assembler
  size_t dropped_ = 0;    // of them trimmed at the start
  size_t emitted_ = 0;    // position up to which text was handed out
  int64_t characters_ = 0;
  bool opened_ = false;        // text has begun: nothing more is trimmed at the start
  bool held_newline_ = false;  // Trim::both: a newline that may turn out to be the last
  std::deque<Pending> pending_;
};

}  // namespace tutti::api
