#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "darkroom/web/http_exchange.h"

namespace darkroom {

/// One connection to the server; waits at most a minute for anything.
class ServeClient {
 public:
  explicit ServeClient(const SocketAddress& address) {
    const sockaddr_storage place = address.to_sockaddr();
    socket_ = socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    EXPECT_EQ(setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof(sockaddr_in)), 0);
  }
  ~ServeClient() { ::close(socket_); }
  ServeClient(const ServeClient&) = delete;
  ServeClient& operator=(const ServeClient&) = delete;

  int descriptor() const { return socket_; }

  void send_text(const std::string& text) const {
    // The server may have answered and closed already: what it said is what counts.
    [[maybe_unused]] const ssize_t sent = send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  /// Reads up to and with `end`; what comes after it stays for the next call.
  std::string receive_until(std::string_view end) const {
    std::string received;
    while (!received.ends_with(end)) {
      const std::string next = receive(1);
      if (next.empty()) {
        break;
      }
      received += next;
    }
    return received;
  }
  std::string receive(size_t count) const {
    std::string received(count, '\0');
    const ssize_t num_bytes = recv(socket_, received.data(), count, MSG_WAITALL);
    received.resize(static_cast<size_t>(std::max<ssize_t>(0, num_bytes)));
    return received;
  }
  /// Whether something has come that was not received.
  bool has_reply() const {
    char next = 0;
    return recv(socket_, &next, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }
  /// Whether the server has ended the connection and all that it said was received.
  bool has_ended() const {
    char next = 0;
    return recv(socket_, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }
  std::string receive_all() const {
    std::string received;
    for (;;) {
      char buffer[65'536];
      const ssize_t num_bytes = recv(socket_, buffer, sizeof buffer, 0);
      if (num_bytes <= 0) {
        return received;
      }
      received.append(buffer, static_cast<size_t>(num_bytes));
    }
  }

 private:
  int socket_ = -1;
};

/// A header.
inline constexpr const char* kWantsPng = "Accept: image/png\r\n";

inline std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n";
}

inline std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

/// The body of a chunked reply; nothing beyond the last whole chunk. `is_whole` says whether the last chunk, which ends it, was there.
inline std::string dechunked(std::string_view reply, bool* is_whole = nullptr) {
  std::string body;
  std::string_view rest = reply.substr(std::min(reply.size(), reply.find("\r\n\r\n") + 4));
  for (;;) {
    size_t length = 0;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), length, 16);
    const auto head = static_cast<size_t>(parsed.ptr - rest.data()) + 2;
    const bool is_there = parsed.ec == std::errc() && rest.size() >= head + length + 2;
    if (is_whole != nullptr) {
      *is_whole = is_there && length == 0;
    }
    if (!is_there || length == 0) {
      return body;
    }
    body += rest.substr(head, length);
    rest.remove_prefix(head + length + 2);
  }
}

}  // namespace darkroom
