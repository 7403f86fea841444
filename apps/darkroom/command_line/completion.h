#pragma once

#include <string>

#include "command_line.h"

namespace darkroom {

/// Completion of verbs, flags, choices, files and folders for bash, zsh or fish, from the definitions.
/// REQUIRES: `shell` is one of completion_shells().
std::string completion_script(const CommandLine& line, const std::string& shell);
std::vector<std::string> completion_shells();

}  // namespace darkroom
