// A client that says exactly what the test wants, over a plain socket.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>

namespace tutti::http {

struct RawResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names as sent
  std::string body;                            // chunks joined
  bool complete = false;                       // neither cut off nor timed out
};

class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), in_(std::move(other.in_)) {}
  RawClient& operator=(RawClient&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(connected_, other.connected_);
    std::swap(at_end_, other.at_end_);
    in_.swap(other.in_);
    return *this;
  }
  ~RawClient() { close(); }

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Closes with a reset instead of a farewell.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void shut_sending() { ::shutdown(fd_, SHUT_WR); }

  // false: the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  bool get(std::string_view path) { return send("GET " + std::string(path) + " HTTP/1.1\r\nHost: t\r\n\r\n"); }
  bool post(std::string_view path, std::string_view body) {
    return send("POST " + std::string(path) + " HTTP/1.1\r\nHost: t\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + std::string(body));
  }

  // Everything until the text has come (included); what has come so far if it does not within the time.
  std::string read_until(std::string_view text, int milliseconds = 5000) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    for (;;) {
      if (const size_t at = in_.find(text); at != std::string::npos) return take(at + text.size());
      if (!receive(end)) return take(in_.size());
    }
  }
  // Receives at most n bytes and forgets them.
  void skip(size_t n) {
    std::string bytes(n, 0);
    (void)!::recv(fd_, bytes.data(), n, MSG_DONTWAIT);
  }
  // True when the server closes (whatever it still sends) within the time.
  bool closed_within(int milliseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (receive(end)) {
    }
    return at_end_;
  }
  const std::string& unread() const { return in_; }

  RawResponse response(bool head_only = false, int milliseconds = 5000) {
    RawResponse r;
    const std::string head = read_until("\r\n\r\n", milliseconds);
    if (!head.ends_with("\r\n\r\n")) return r;
    r.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      r.headers[head.substr(at, colon - at)] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    r.complete = true;
    if (head_only || r.status == 204) return r;
    if (r.headers.count("Content-Length"))
      r.body = read_exactly(std::stoul(r.headers["Content-Length"]), r.complete);
    else if (r.headers.count("Transfer-Encoding"))
      r.body = read_chunks(r.complete);
    else
      r.complete = closed_within(milliseconds), r.body = take(in_.size());
    return r;
  }

 private:
  std::string take(size_t n) {
    std::string out = in_.substr(0, n);
    in_.erase(0, n);
    return out;
  }
  std::string read_exactly(size_t n, bool& complete) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (in_.size() < n && receive(end)) {
    }
    complete = in_.size() >= n;
    return take(std::min(n, in_.size()));
  }
  std::string read_chunks(bool& complete) {
    std::string body;
    for (;;) {
      const std::string line = read_until("\r\n");
      complete = line.ends_with("\r\n");
      if (!complete) return body;
      const size_t n = std::stoul(line, nullptr, 16);
      const std::string chunk = read_exactly(n + 2, complete);
      if (n == 0 || !complete) return body;
      body += chunk.substr(0, n);
    }
  }
  bool receive(std::chrono::steady_clock::time_point end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd p{fd_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&p, 1, static_cast<int>(left.count())) <= 0) return false;
    char buffer[16384];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n > 0) in_.append(buffer, static_cast<size_t>(n));
    at_end_ = n <= 0;
    return n > 0;
  }

  int fd_;
  bool connected_ = false, at_end_ = false;
  std::string in_;
};

}  // namespace tutti::http
