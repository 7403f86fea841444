#include "darkroom/web/http_exchange.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cstring>

#include "darkroom/core/check.h"
#include "darkroom/web/header_text.h"

namespace darkroom {
namespace {

constexpr std::string_view kHttpEndNames[] = {"answered",
                                              "bad_request",
                                              "unresolved",
                                              "refused_address",
                                              "connection_refused",
                                              "unreachable",
                                              "connect_timeout",
                                              "tls",
                                              "broken",
                                              "truncated",
                                              "idle_timeout",
                                              "deadline",
                                              "not_http",
                                              "headers_too_large",
                                              "body_too_large",
                                              "stopped",
                                              "sink_failed",
                                              "cancelled",
                                              "no_descriptors",
                                              "internal"};
static_assert(std::size(kHttpEndNames) == static_cast<size_t>(HttpEnd::kInternal) + 1);

}  // namespace

std::string SocketAddress::to_string() const {
  return ip.is_ipv4 ? fmt::format("{}:{}", ip.to_string(), port) : fmt::format("[{}]:{}", ip.to_string(), port);
}

sockaddr_storage SocketAddress::to_sockaddr() const {
  sockaddr_storage storage{};
  if (ip.is_ipv4) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    std::memcpy(&address.sin_addr, ip.bytes.data(), sizeof address.sin_addr);
    std::memcpy(&storage, &address, sizeof address);
  } else {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    std::memcpy(&address.sin6_addr, ip.bytes.data(), sizeof address.sin6_addr);
    std::memcpy(&storage, &address, sizeof address);
  }
  return storage;
}

std::optional<SocketAddress> SocketAddress::from_sockaddr(const sockaddr& address) {
  const auto ip = IpAddress::from_sockaddr(address);
  if (!ip) {
    return std::nullopt;
  }
  in_port_t port = 0;  // Both families hold it right behind the family.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  std::memcpy(&port, reinterpret_cast<const char*>(&address) + offsetof(sockaddr_in, sin_port), sizeof port);
  return SocketAddress{*ip, ntohs(port)};
}

void HttpHead::for_each(const std::function<void(std::string_view, std::string_view)>& visit) const {
  std::string_view rest = lines_;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + 1);
    if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
      visit(trim_blanks(line.substr(0, colon)), trim_blanks(line.substr(colon + 1)));
    }
  }
}

std::optional<std::string_view> HttpHead::find(std::string_view name) const {
  std::optional<std::string_view> found;
  for_each([&](std::string_view header, std::string_view value) {
    if (!found && same_word(header, name)) {
      found = value;
    }
  });
  return found;
}

void HttpHead::add_line(std::string_view line) {
  if (!lines_.empty() && (line.starts_with(' ') || line.starts_with('\t'))) {
    lines_.back() = ' ';  // Folded: goes on with the line before.
  }
  for (const char c : trim_blanks(line)) {
    lines_ += c == '\n' ? ' ' : c;
  }
  lines_ += '\n';
}

void HttpHead::clear() {
  status = 0;
  content_length.reset();
  lines_.clear();
}

std::string_view http_end_name(HttpEnd end) {
  const auto i = static_cast<size_t>(end);
  DARKROOM_CHECK(i < std::size(kHttpEndNames), "no such end of an exchange:", i);
  return kHttpEndNames[i];
}

bool may_be_own_network(HttpEnd end) {
  switch (end) {
    case HttpEnd::kUnresolved:
    case HttpEnd::kUnreachable:
    case HttpEnd::kConnectTimeout:
    case HttpEnd::kBroken:
    case HttpEnd::kTruncated:
    case HttpEnd::kIdleTimeout:
    case HttpEnd::kDeadline:
      return true;
    default:
      return false;
  }
}

}  // namespace darkroom
