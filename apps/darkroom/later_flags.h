#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>

namespace darkroom {

/// Adds flags of the command line's contract that a later release brings: absent from the help, refused by name. The names are
/// string literals.
void refuse_later_flags(CLI::App& command, std::initializer_list<const char*> names);

}  // namespace darkroom
