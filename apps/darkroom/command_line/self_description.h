#pragma once

#include <functional>
#include <memory>

#include "command_line.h"

namespace darkroom {

/// Makes the whole command line anew.
using CommandLineMaker = std::function<std::unique_ptr<CommandLine>()>;

/// Adds the verbs that speak about the others: `completion SHELL`, `man`, and the hidden `help [VERB...]`, which with --json prints all
/// definitions, and with --parse reads command lines (a JSON list of texts a line) from the standard input, puts each through read() of a
/// new command line and prints what became of it: exit code, message, hint, settings.
void add_self_description(CommandLine& line, const CommandLineMaker& make);

/// Writes to the standard output. Errors: kUnavailable when it is full or closed.
Status print_text(const std::string& text);

}  // namespace darkroom
