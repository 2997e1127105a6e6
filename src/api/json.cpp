#include "api/json.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <unordered_set>
#include <vector>

namespace tutti::api {
namespace {

// Builds the document from the parser's events. Keys are appended without the map's own linear search, so that an
// object of a million keys costs linear time; the set of an object's keys finds duplicates.
class Builder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return put(Json(nullptr)); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(number_integer_t value) override { return put(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(Json(value)); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!std::isfinite(value)) return fail(fmt::format("the number {} is too large", text.substr(0, 40)));
    return put(Json(value));
  }
  bool string(string_t& value) override { return put(Json(std::move(value))); }
  bool binary(binary_t&) override { return fail("binary data"); }

  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override {
    keys_.pop_back();
    stack_.pop_back();
    return true;
  }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override {
    stack_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) return fail(fmt::format("the key \"{}\" stands twice in one object", name));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string& last, const nlohmann::detail::exception& e) override {
    if (!error_.empty()) return false;
    const bool number = std::string_view(e.what()).find("number overflow") != std::string_view::npos;
    error_ = number ? fmt::format("the number {} is too large", lossy_utf8(last.substr(0, 40)))
                    : fmt::format("not valid JSON at byte {}", position);
    return false;
  }

  Json root;
  std::string take_error() { return error_.empty() ? "not valid JSON" : std::move(error_); }

 private:
  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  Json* place(Json&& value) {
    if (stack_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    auto& members = parent.get_ref<Json::object_t&>();
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }

  bool put(Json&& value) {
    place(std::move(value));
    return true;
  }

  bool open(Json&& value) {
    if (stack_.size() >= kMaxJsonDepth) return fail(fmt::format("nested deeper than {}", kMaxJsonDepth));
    if (value.is_object()) keys_.emplace_back();
    stack_.push_back(place(std::move(value)));
    return true;
  }

  std::vector<Json*> stack_;                           // open containers; a parent never grows while its child is open
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects
  std::string key_;
  std::string error_;
};

// Length of the well-formed sequence at the front, 0 when there is none. bad: bytes to replace by one U+FFFD.
size_t sequence_length(std::string_view s, size_t& bad) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const unsigned lead = byte(0);
  bad = 1;
  if (lead < 0x80) return 1;
  size_t n = 0;
  unsigned low = 0x80, high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) n = 2;
  if (lead >= 0xe0 && lead <= 0xef) n = 3;
  if (lead >= 0xf0 && lead <= 0xf4) n = 4;
  if (n == 0) return 0;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (size_t i = 1; i < n; ++i) {
    if (i >= s.size() || byte(i) < low || byte(i) > high) return 0;
    low = 0x80, high = 0xbf;
    bad = i + 1;
  }
  return n;
}

}  // namespace

Result<Json, JsonError> parse_json(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return JsonError{builder.take_error()};
  return std::move(builder.root);
}

std::string_view type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_float:
      return "a number with a fraction";
    default:
      return "an integer";
  }
}

void append_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t clean = 0;  // start of the run that needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, clean, i - clean);
    clean = i + 1;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out += "\\u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(text, clean, text.size() - clean);
  out += '"';
}

void append_int(std::string& out, int64_t value) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}

void append_float(std::string& out, float value) {
  if (!std::isfinite(value)) {
    out += value > 0 ? "9999.0" : "-9999.0";
    return;
  }
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

std::string lossy_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    size_t bad = 0;
    const size_t n = sequence_length(bytes, bad);
    if (n > 0) {
      out.append(bytes.substr(0, n));
    } else {
      out += "\xef\xbf\xbd";
    }
    bytes.remove_prefix(n > 0 ? n : bad);
  }
  return out;
}

bool valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    size_t bad = 0;
    const size_t n = sequence_length(bytes, bad);
    if (n == 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

}  // namespace tutti::api
