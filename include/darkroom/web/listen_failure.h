#pragma once

#include <string_view>

#include "darkroom/core/result.h"
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

/// A socket that listens.
struct Listener {
  int descriptor = -1;
  SocketAddress address = {};  ///< With the port that it got.
};

/// Listens at `address` without blocking; connections of a run before, which wait for their end, do not hold the port. Whoever asks closes
/// the descriptor. Errors: listen_failure's.
Result<Listener> open_listener(const SocketAddress& address, int backlog, const ListenerWords& words);

}  // namespace darkroom
