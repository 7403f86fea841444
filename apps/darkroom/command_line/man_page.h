#pragma once

#include <string>

#include "command_line.h"

namespace darkroom {

/// The manual page of section 1 in roff, from the definitions.
std::string man_page(const CommandLine& line);

}  // namespace darkroom
