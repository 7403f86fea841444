#pragma once

#include <string_view>

#include "darkroom/core/status.h"

namespace darkroom {

/// The Status of a failed system call as a sentence, "cannot open urls.parquet: no such file or folder": `doing` is the verb ("open"),
/// and what to do about it is added where the user can do something.
Status status_of_errno(int error, std::string_view doing, std::string_view path);

}  // namespace darkroom
