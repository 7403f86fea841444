#pragma once

#include <string>

namespace darkroom {

/// Whether the fault of this name is planted in this run (environment variable DARKROOM_PLANTED).
bool is_planted(const std::string& fault);

}  // namespace darkroom
