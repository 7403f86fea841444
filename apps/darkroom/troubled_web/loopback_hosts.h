#pragma once

#include <cstdint>

namespace darkroom {

enum class LoopbackHosts : uint8_t {
  kOne,  ///< 127.0.0.1.
  kAll,  ///< 127.0.0.1, 127.0.0.2, ...; one where the system lets no socket bind to the loopback device.
};

}  // namespace darkroom
