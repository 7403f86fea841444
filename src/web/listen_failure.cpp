#include "darkroom/web/listen_failure.h"

#include <fmt/format.h>

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

}  // namespace darkroom
