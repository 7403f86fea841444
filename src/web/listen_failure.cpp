#include "darkroom/web/listen_failure.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace darkroom {

Status listen_failure(const SocketAddress& address, int error, const ListenerWords& words) {
  const std::string shown = address.to_string();
  switch (error) {
    case EADDRINUSE:
      return Status::failed_precondition(
          fmt::format("cannot {}: the port is taken; choose another one with {} (address):", words.task, words.port_flag), shown);
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return Status::failed_precondition(fmt::format("cannot {}: this machine has no such address ({}):", words.task, words.address_flag),
                                         shown);
    case EACCES:
    case EPERM:
      return Status::failed_precondition(
          fmt::format("cannot {}: ports below 1024 need a right that this user lacks ({}):", words.task, words.port_flag), shown);
    default:
      return Status::resource_exhausted(fmt::format("cannot {} (address, reason):", words.task), shown,
                                        std::generic_category().message(error));
  }
}

Result<Listener> open_listener(const SocketAddress& address, int backlog, const ListenerWords& words) {
  sockaddr_storage place = address.to_sockaddr();
  const socklen_t place_bytes = place.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const int descriptor = socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  socklen_t size = sizeof place;
  if (descriptor < 0 || setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(descriptor, reinterpret_cast<const sockaddr*>(&place), place_bytes) != 0 || listen(descriptor, backlog) != 0 ||
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    const int error = errno;
    if (descriptor >= 0) {
      close(descriptor);
    }
    return listen_failure(address, error, words);
  }
  return Listener{.descriptor = descriptor,
                  .address = SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr&>(place)).value_or(address)};
}

}  // namespace darkroom
