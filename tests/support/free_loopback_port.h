#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace darkroom {

/// A port of the loopback that nobody used a moment ago, below those that the system gives to whoever asks for any; 0: none was to be had.
inline int64_t free_loopback_port() {
  static std::atomic<unsigned> next = 101U * static_cast<unsigned>(getpid());
  for (int i = 0; i < 1000; ++i) {
    const auto port = static_cast<uint16_t>(20'000 + next++ % 12'000);
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool is_free = bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(probe);
    if (is_free) {
      return port;
    }
  }
  return 0;
}

}  // namespace darkroom
