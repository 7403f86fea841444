#pragma once

#include <string_view>

#include "darkroom/core/status.h"

namespace darkroom {

/// The Status of a failed system call: `doing` says what was being done ("writing the file"), and what to do about it
/// is added where the user can do something.
Status status_of_errno(int error, std::string_view doing, std::string_view path);

}  // namespace darkroom
