#pragma once

#include <chrono>
#include <string>

#include "darkroom/serve/safety_check.h"

namespace darkroom {

/// A program as a safety checker: it is started for each picture, gets the PNG on its stdin and writes "allow" or "block" to its stdout.
/// `command` is its name with arguments, split at blanks. It has `patience`; then it is ended, and that is no answer, nor is another text
/// or another exit code than 0. Errors: kInvalidArgument: no program, or a URL.
Result<SafetyCheck> safety_program(const std::string& command, std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace darkroom
