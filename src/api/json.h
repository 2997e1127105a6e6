// JSON as the API reads and writes it: a strict parser with limits, and a writer that appends to a string.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti::api {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 128;

struct JsonError {
  std::string message;  // what is wrong and at which byte
};

// Refuses what RFC 8259 leaves open as well: invalid UTF-8, lone surrogates, duplicate keys, numbers beyond double,
// nesting deeper than kMaxJsonDepth. Time and memory are linear in the text.
Result<Json, JsonError> parse_json(std::string_view text);

// "an integer", "a string", … for messages.
std::string_view type_name(const Json& value);

// Writers. Text must be valid UTF-8.
void append_string(std::string& out, std::string_view text);  // quoted and escaped
void append_int(std::string& out, int64_t value);
void append_float(std::string& out, float value);  // shortest text that gives the same float; -inf and NaN: -9999.0

// The same bytes with every ill-formed UTF-8 sequence replaced by U+FFFD.
std::string lossy_utf8(std::string_view bytes);
bool valid_utf8(std::string_view bytes);

}  // namespace tutti::api
