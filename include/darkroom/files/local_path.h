#pragma once

#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

/// The path of a local address: a plain path, or what follows file:// (with %XX decoded).
/// Errors: kInvalidArgument for every other scheme, and for a malformed address.
Result<std::string> local_path(const std::string& uri);

}  // namespace darkroom
