#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "support/scripted_server.h"

namespace darkroom {

// What tests of the web ask of a ScriptedServer and have it answer.

/// "http://127.0.0.1:PORT" and `target`.
inline std::string server_url(const ScriptedServer& server, const std::string& target = "") {
  return fmt::format("http://127.0.0.1:{}{}", server.port(), target);
}

/// A port at which nobody listens: held to the program's end, so that nobody else gets it.
inline uint16_t closed_port() {
  static const uint16_t port = [] {
    const int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    const bool is_held = bind(held, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                         getsockname(held, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    return is_held ? ntohs(address.sin_port) : uint16_t{0};
  }();
  return port;
}

/// An answer with its length. `headers`: lines that end with "\r\n".
inline std::string http_answer(int status, const std::string& body, const std::string& headers = "", bool is_head = false) {
  return fmt::format("HTTP/1.1 {} X\r\n{}Content-Length: {}\r\n\r\n{}", status, headers, body.size(), is_head ? "" : body);
}

/// The value of a request's header, or "".
inline std::string request_header(const ScriptedServer::Request& request, const std::string& name) {
  const size_t found = request.head.find("\r\n" + name + ": ");
  if (found == std::string::npos) {
    return "";
  }
  const size_t begin = found + name.size() + 4;
  return request.head.substr(begin, request.head.find("\r\n", begin) - begin);
}

/// "/path?query" of a request.
inline std::string request_target_of(const ScriptedServer::Request& request) {
  const size_t begin = request.head.find(' ') + 1;
  return request.head.substr(begin, request.head.find(' ', begin) - begin);
}

/// What a server with ranges answers (RFC 9110, section 14).
inline std::string ranged_answer(const ScriptedServer::Request& request, const std::string& bytes, const std::string& headers) {
  const std::string range = request_header(request, "Range");
  if (range.empty()) {
    return http_answer(200, bytes, headers, request.head.starts_with("HEAD"));
  }
  const size_t dash = range.find('-');
  const bool is_suffix = dash == 6;
  const size_t size = bytes.size();
  const size_t first = is_suffix ? size - std::min(size, std::stoul(range.substr(7))) : std::stoul(range.substr(6, dash - 6));
  const size_t last = is_suffix || dash + 1 == range.size() ? size - 1 : std::min(size - 1, std::stoul(range.substr(dash + 1)));
  if (first >= size) {
    return http_answer(416, "", fmt::format("Content-Range: bytes */{}\r\n", size));
  }
  return http_answer(206, bytes.substr(first, last - first + 1),
                     fmt::format("{}Content-Range: bytes {}-{}/{}\r\n", headers, first, last, size));
}

}  // namespace darkroom
