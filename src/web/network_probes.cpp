#include "network_probes.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace darkroom {
namespace {

// Reads "192.0.2.1:80" and "[2001:db8::1]:80".
std::optional<SocketAddress> parse_probe_address(const std::string& text) {
  const auto parsed = AllowedNetwork::parse(text);
  return parsed.is_ok() ? std::optional(SocketAddress{parsed->address, parsed->port}) : std::nullopt;
}

}  // namespace

NetworkProbes::~NetworkProbes() {
  for (const Open& open : open_) {
    if (open.socket >= 0) {
      ::close(open.socket);
    }
  }
}

void NetworkProbes::begin(NetworkProbe probe, Instant now) {
  Open& open = open_.emplace_back();
  open.ended.probe = std::move(probe);
  open.ended.began = now;
  if (open.ended.probe.kind == NetworkProbe::Kind::kAddress) {
    connect(open);
    return;
  }
  const std::string name = fmt::format("darkroom-{:016x}.com", names_());
  resolver_.resolve_at_once(name, [inbox = inbox_, round = open.ended.probe.round](const DnsAnswer& answer) {
    inbox->post({0, ProbeAnswer{round, answer.kind}});
  });
}

void NetworkProbes::connect(Open& open) {
  const auto address = parse_probe_address(open.ended.probe.address);
  if (!address || !policy_.allows(*address)) {
    open.answer = false;
    return;
  }
  const sockaddr_storage to = address->to_sockaddr();
  open.socket = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const socklen_t size = address->ip.is_ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (open.socket >= 0 && ::connect(open.socket, reinterpret_cast<const sockaddr*>(&to), size) == 0) {
    open.answer = true;
  } else if (open.socket < 0 || errno != EINPROGRESS) {
    open.answer = open.socket >= 0 && errno == ECONNREFUSED;
  }
}

void NetworkProbes::take_answer(const ProbeAnswer& answer) {
  for (Open& open : open_) {
    if (open.ended.probe.kind == NetworkProbe::Kind::kResolver && open.ended.probe.round == answer.round) {
      open.answer = answer.kind == DnsAnswer::Kind::kOk || answer.kind == DnsAnswer::Kind::kNoName;
    }
  }
}

void NetworkProbes::add_sockets(std::vector<pollfd>& sockets) const {
  for (const Open& open : open_) {
    if (open.socket >= 0 && !open.answer) {
      sockets.push_back({.fd = open.socket, .events = POLLOUT, .revents = 0});
    }
  }
}

void NetworkProbes::take_sockets(const std::vector<pollfd>& sockets) {
  for (Open& open : open_) {
    const auto found = std::ranges::find(sockets, open.socket, &pollfd::fd);
    if (open.socket >= 0 && found != sockets.end() && found->revents != 0) {
      int failure = 0;
      socklen_t size = sizeof failure;
      getsockopt(open.socket, SOL_SOCKET, SO_ERROR, &failure, &size);
      open.answer = failure == 0 || failure == ECONNREFUSED;
    }
  }
}

std::optional<NetworkProbes::Instant> NetworkProbes::next_instant() const {
  std::optional<Instant> next;
  for (const Open& open : open_) {
    const Instant at = open.answer ? open.ended.began : open.ended.began + kPatience;
    next = std::min(next.value_or(at), at);
  }
  return next;
}

std::optional<NetworkProbes::Ended> NetworkProbes::take_ended(Instant now) {
  const auto found =
      std::ranges::find_if(open_, [&](const Open& open) { return open.answer.has_value() || now >= open.ended.began + kPatience; });
  if (found == open_.end()) {
    return std::nullopt;
  }
  Ended ended = std::move(found->ended);
  ended.is_answered = found->answer.value_or(false);
  if (found->socket >= 0) {
    ::close(found->socket);
  }
  open_.erase(found);
  return ended;
}

}  // namespace darkroom
