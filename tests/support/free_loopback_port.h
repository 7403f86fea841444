#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace darkroom {

/// A port of the loopback that nobody used a moment ago; 0: none was to be had.
inline int64_t free_loopback_port() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool is_found = bind(probe, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                        getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(probe);
  return is_found ? ntohs(address.sin_port) : 0;
}

}  // namespace darkroom
