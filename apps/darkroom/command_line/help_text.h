#pragma once

#include <string>

#include "command_line.h"

namespace darkroom {

/// The verbs by heading, and how to go on.
std::string program_help(const CommandLine& line);
/// The verbs of two words that begin with `family`.
std::string family_help(const CommandLine& line, const std::string& family);
/// Usage, flags by group with type, default, unit and range, examples.
std::string verb_help(const CommandLine& line, const VerbDefinition& verb);
/// "darkroom process RAW_URI OUTPUT_URI --model DIR [flags]".
std::string usage_line(const CommandLine& line, const VerbDefinition& verb);
/// "(bytes, at least 1 B; default 50 MB)", or an empty text.
std::string value_note(const FlagDefinition& flag);

/// All definitions for programs: what the tests of the contract read.
nlohmann::json definitions_json(const CommandLine& line);

}  // namespace darkroom
