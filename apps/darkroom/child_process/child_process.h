#pragma once

#include <sys/types.h>

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// The variable that tells a program the process that started it, with which it ends, however that ends.
inline constexpr const char* kStarterVariable = "DARKROOM_STARTER";
/// Its value where a program stays between the two that is not known by its number: the started one ends with its parent, whoever that is.
inline constexpr const char* kAnyStarter = "parent";

/// How a program is joined to this one.
struct ChildOptions {
  bool has_input = false;                     ///< A pipe leads to its stdin; else that is empty.
  bool merges_errors = false;                 ///< Its stderr goes where its stdout goes; else it is this program's.
  bool has_own_group = false;                 ///< Ctrl-C does not reach it.
  bool closes_others = false;                 ///< It gets no descriptor beside its first three, whoever forgot to say so of one.
  bool shares_output = false;                 ///< Its stdout is this program's; no pipe comes from it.
  std::string output_path = {};               ///< A file that its stdout is added to; no pipe comes from it.
  std::vector<std::string> environment = {};  ///< NAME=VALUE: variables that it has besides this program's, or in their place.
};

/// A program that runs, with our ends of its pipes: whoever started it closes them and waits for it.
struct Child {
  pid_t pid = 0;
  int input = -1;   ///< Leads to its stdin; -1: none was asked for.
  int output = -1;  ///< Comes from its stdout; -1: that goes elsewhere.
};

/// Starts a program, `command[0]`, which is looked up in PATH when it holds no slash. It ends by SIGINT, SIGTERM and SIGPIPE, which this
/// program blocks or ignores. Errors: kNotFound (cannot be started), kResourceExhausted (no process or memory for it),
/// kUnavailable (no pipe, no file for its output).
Result<Child> start_child(const std::vector<std::string>& command, const ChildOptions& options);

/// Waits for a program's end: its exit code, or 128 + the number of the signal that ended it.
/// Errors: kUnavailable (the code is lost, as where SIGCHLD is ignored).
Result<int> wait_for_child(pid_t pid);

/// How a program ended.
struct ChildEnd {
  int exit_code = 0;       ///< As of wait_for_child.
  int64_t peak_bytes = 0;  ///< Largest resident size that it had; at least what this program had when it started it.
};
/// The same with what the program used. Errors: as above.
Result<ChildEnd> wait_for_child_end(pid_t pid);

/// A descriptor that is readable once a program has ended (pidfd_open); -1 with errno where there is none. Who asks closes it.
int watch_child(pid_t pid);

struct ChildOutput {
  int exit_code = 0;  ///< As of wait_for_child.
  std::string text;   ///< The end of what it wrote to stdout and stderr.
};

/// Runs a program to its end, with an empty stdin and a process group of its own; a stop request ends it at once.
/// Errors: those of start_child and wait_for_child, kCancelled.
Result<ChildOutput> run_child(const std::vector<std::string>& command, const std::stop_token& stop);

}  // namespace darkroom
