// The text of HTTP/1.1 messages: targets, heads, chunks. No sockets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "http/server.h"

namespace tutti::http {

struct Target {
  std::string path;   // decoded
  std::string query;  // as sent
};
// Origin form ("/a%20b?q"), absolute form ("http://host/a") or "*". Nothing for a broken escape or an encoded NUL.
std::optional<Target> parse_target(std::string_view target);

// Appends bytes as one chunk; empty bytes append nothing, since an empty chunk would end the body.
void append_chunk(std::string& out, std::string_view bytes);
constexpr std::string_view kLastChunk = "0\r\n\r\n";

// How the body that follows a head is delimited.
enum class Framing { length, chunked, until_close };

struct HeadStyle {
  int version = 11;  // of the request: 10 or 11
  bool keep_alive = true;
  Framing framing = Framing::length;
};
// Status line, headers and the empty line. Content-Length is that of response.body.
std::string response_head(const Response& response, const HeadStyle& style);

std::string_view reason_phrase(int status);
// Whether answers of that status have a body at all.
bool status_has_body(int status);
bool iequals(std::string_view a, std::string_view b);

}  // namespace tutti::http
