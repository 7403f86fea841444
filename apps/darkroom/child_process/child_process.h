#pragma once

#include <sys/types.h>

#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// How a program is joined to this one.
struct ChildOptions {
  bool has_input = false;                     ///< A pipe leads to its stdin; else that is empty.
  bool merges_errors = false;                 ///< Its stderr goes where its stdout goes; else it is this program's.
  bool has_own_group = false;                 ///< Ctrl-C does not reach it.
  bool shares_output = false;                 ///< Its stdout is this program's; no pipe comes from it.
  std::vector<std::string> environment = {};  ///< NAME=VALUE: variables that it has besides this program's, or in their place.
};

/// A program that runs, with our ends of its pipes: whoever started it closes them and waits for it.
struct Child {
  pid_t pid = 0;
  int input = -1;   ///< Leads to its stdin; -1: none was asked for.
  int output = -1;  ///< Comes from its stdout; -1: that is shared.
};

/// Starts a program, `command[0]`, which is looked up in PATH when it holds no slash. It ends by SIGINT, SIGTERM and SIGPIPE, which this
/// program blocks or ignores. Errors: kNotFound (cannot be started), kUnavailable (no pipe).
Result<Child> start_child(const std::vector<std::string>& command, const ChildOptions& options);

/// Waits for a program's end: its exit code, or 128 + the number of the signal that ended it.
/// Errors: kUnavailable (the code is lost, as where SIGCHLD is ignored).
Result<int> wait_for_child(pid_t pid);

struct ChildOutput {
  int exit_code = 0;  ///< As of wait_for_child.
  std::string text;   ///< The end of what it wrote to stdout and stderr.
};

/// Runs a program to its end, with an empty stdin and a process group of its own; a stop request ends it at once.
/// Errors: those of start_child and wait_for_child, kCancelled.
Result<ChildOutput> run_child(const std::vector<std::string>& command, const std::stop_token& stop);

}  // namespace darkroom
