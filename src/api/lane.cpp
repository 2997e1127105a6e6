#include "api/lane.h"

#include <algorithm>
#include <iterator>

namespace tutti::api {
namespace {

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

void Piece::clear() {
  text.clear();
  entries.clear();
}

void Piece::append(Piece&& other) {
  text += other.text;
  entries.insert(entries.end(), std::make_move_iterator(other.entries.begin()),
                 std::make_move_iterator(other.entries.end()));
}

TextLane::TextLane(Trim trim, std::vector<std::string> stops, bool include_stop)
    : trim_(trim), has_stops_(!stops.empty()), matcher_(std::move(stops), include_stop) {}

void TextLane::push(std::string_view bytes, const std::optional<sample::Logprobs>& values, bool look_for_stops,
                    Piece& out) {
  if (bytes.empty()) return;
  const size_t begin = assembled_;
  const int64_t offset = characters_;
  std::string text = assembler_.push(bytes);
  assembled_ += text.size();
  if (values) {
    characters_ += count_characters(text);
    pending_.push_back({{*values, 0, offset}, begin, assembled_});
  }
  if (!text.empty()) take(std::move(text), look_for_stops, out);
  if (!pending_.empty()) release(out);
}

void TextLane::finish(Piece& out) {
  std::string rest = assembler_.finish();
  assembled_ += rest.size();
  if (!rest.empty()) take(std::move(rest), has_stops_, out);
  std::string held = matcher_.finish();
  emitted_ += held.size();
  out.text += held;
  release(out);
  pending_.clear();
}

void TextLane::take(std::string text, bool look_for_stops, Piece& out) {
  text = trim(std::move(text));
  if (text.empty()) return;
  if (has_stops_ && look_for_stops) text = matcher_.push(text);
  emitted_ += text.size();
  out.text += text;
}

std::string TextLane::trim(std::string text) {
  if (trim_ == Trim::none) {
    opened_ = true;
    return text;
  }
  if (!opened_) {
    size_t n = text.find_first_not_of('\n');
    if (n == std::string::npos) n = text.size();
    if (trim_ == Trim::both) n = std::min<size_t>(n, 1);
    text.erase(0, n);
    dropped_ += n;
    emitted_ += n;
    opened_ = !text.empty() || (trim_ == Trim::both && n > 0);
  }
  if (trim_ != Trim::both || text.empty()) return text;
  if (held_newline_) text.insert(text.begin(), '\n');
  held_newline_ = text.back() == '\n';
  if (held_newline_) text.pop_back();
  return text;
}

void TextLane::release(Piece& out) {
  while (!pending_.empty()) {
    Pending& front = pending_.front();
    const bool trimmed_away = front.end > front.begin && front.end <= dropped_;
    if (!trimmed_away && emitted_ <= std::max(front.begin, dropped_)) return;
    if (!trimmed_away) {
      front.entry.skip = dropped_ > front.begin ? dropped_ - front.begin : 0;
      out.entries.push_back(std::move(front.entry));
    }
    pending_.pop_front();
  }
}

}  // namespace tutti::api
