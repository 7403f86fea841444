#pragma once

#include <map>
#include <string>
#include <vector>

#include "verb_definition.h"

namespace darkroom {

/// The values of the flags and positionals that were given, by definition, in the order of mention.
using GivenFlags = std::map<const FlagDefinition*, std::vector<std::string>>;

struct Arguments {
  bool asks_for_help = false;
  GivenFlags given;
};

/// Sorts a verb's arguments with CLI11 into flags and positionals; values are looked at by their definitions later.
/// Errors: kInvalidArgument for an unknown flag (naming the nearest), a missing value, a superfluous word.
Result<Arguments> sort_arguments(const std::string& verb, const std::vector<const FlagDefinition*>& flags,
                                 const std::vector<std::string>& arguments);

/// The flags of a TOML file: keys at its top, and those in the table of the verb's name ([download], [models.init]).
/// Errors: kNotFound and others of reading the file; kInvalidArgument for TOML that is none (with its line), an unknown key (naming the
/// nearest), a wrong type.
Result<GivenFlags> read_config_file(const std::string& path, const std::string& verb, const std::vector<std::string>& verbs,
                                    const std::vector<const FlagDefinition*>& flags);

}  // namespace darkroom
