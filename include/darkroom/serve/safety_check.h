#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

/// Says of a picture, a whole PNG, whether it may go out. Asked by several threads at a time; ends soon after a stop is requested. Whatever
/// failure it returns or throws, the picture does not go out either, and its request gets 503.
using SafetyCheck = std::function<Result<bool>(const std::string& png, const std::stop_token& stop)>;

}  // namespace darkroom
