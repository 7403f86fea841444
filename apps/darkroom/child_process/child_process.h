#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

struct ChildOutput {
  int exit_code = 0;  ///< 128 + the signal's number when a signal ended it.
  std::string text;   ///< The end of what it wrote to stdout and stderr.
};

/// Runs a program to its end, with an empty stdin, unblocked signals and a process group of its own (Ctrl-C does not reach
/// it; a stop request ends it at once). `arguments[0]` is the program's path.
/// Errors: kNotFound (cannot be started), kCancelled, kUnavailable (no pipe).
Result<ChildOutput> run_child(const std::vector<std::string>& arguments, const std::stop_token& stop);

}  // namespace darkroom
