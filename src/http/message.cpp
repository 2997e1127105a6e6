#include "http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace tutti::http {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

// The time as HTTP writes it, renewed once a second.
const std::string& date() {
  thread_local std::time_t last = 0;
  thread_local std::string text;
  if (const std::time_t now = std::time(nullptr); now != last) {
    constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::tm t{};
    gmtime_r(&now, &t);
    text = fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[static_cast<size_t>(t.tm_wday)], t.tm_mday,
                       kMonths[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    last = now;
  }
  return text;
}

// A line break inside a value would begin a header of the value's author.
void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  const size_t at = out.size();
  out.append(value);
  std::replace_if(
      out.begin() + static_cast<ptrdiff_t>(at), out.end(), [](char c) { return c == '\r' || c == '\n' || c == '\0'; },
      ' ');
  out.append("\r\n");
}

bool is_ours(std::string_view name) {
  return iequals(name, "content-length") || iequals(name, "connection") || iequals(name, "transfer-encoding");
}

}  // namespace

bool iequals(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

std::optional<Target> parse_target(std::string_view target) {
  if (const size_t scheme = target.find("://"); scheme != std::string_view::npos && !target.starts_with('/')) {
    const size_t path = target.find_first_of("/?", scheme + 3);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  std::optional<std::string> path = percent_decode(target.substr(0, mark));
  if (!path) return std::nullopt;
  if (path->empty()) path->push_back('/');
  return Target{*std::move(path), std::string(mark == std::string_view::npos ? "" : target.substr(mark + 1))};
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", bytes.size());
  out.append(bytes).append("\r\n");
}

std::string response_head(const Response& response, const HeadStyle& style) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  append_header(out, "Date", date());
  if (status_has_body(response.status)) {
    if (!response.content_type.empty()) append_header(out, "Content-Type", response.content_type);
    if (style.framing == Framing::length) append_header(out, "Content-Length", std::to_string(response.body.size()));
    if (style.framing == Framing::chunked) append_header(out, "Transfer-Encoding", "chunked");
  }
  for (const auto& [name, value] : response.headers)
    if (!is_ours(name)) append_header(out, name, value);
  if (!style.keep_alive)
    append_header(out, "Connection", "close");
  else if (style.version < 11)
    append_header(out, "Connection", "keep-alive");
  return out.append("\r\n");
}

bool status_has_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

std::string_view reason_phrase(int status) {
  static constexpr std::pair<int, std::string_view> kReasons[] = {
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
      {529, "Overloaded"},
  };
  for (const auto& [code, phrase] : kReasons)
    if (code == status) return phrase;
  return "Status";
}

}  // namespace tutti::http
