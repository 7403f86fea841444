#pragma once

#include <string_view>

#include "darkroom/core/status.h"
#include "darkroom/web/http_exchange.h"

namespace darkroom {

/// How a server calls itself to its user.
struct ListenerWords {
  std::string_view task;          ///< "serve metrics".
  std::string_view port_flag;     ///< Which chooses another port.
  std::string_view address_flag;  ///< Which chooses another address.
};

/// Why a socket does not listen at `address`, from the errno of socket(), bind() or listen(): kFailedPrecondition (the port is taken, may
/// not be used, or the address is none of this machine's), else kResourceExhausted.
Status listen_failure(const SocketAddress& address, int error, const ListenerWords& words);

}  // namespace darkroom
