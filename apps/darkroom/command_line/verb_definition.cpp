#include "verb_definition.h"

#include "darkroom/core/check.h"

namespace darkroom {

FlagDefinition& VerbDefinition::positional(std::string name, ValueDefinition value, std::string help) {
  return flags_.emplace_back(
      FlagDefinition{.name = std::move(name), .help = std::move(help), .group = "", .value = std::move(value), .is_positional = true});
}

FlagDefinition& VerbDefinition::flag(std::string name, ValueDefinition value, std::string help) {
  DARKROOM_CHECK(name.starts_with("--"), "a flag's name begins with two dashes:", name);
  return flags_.emplace_back(FlagDefinition{.name = std::move(name), .help = std::move(help), .group = group_, .value = std::move(value)});
}

void VerbDefinition::later(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    later_except(name, "");
  }
}

void VerbDefinition::later_except(std::string name, std::string accepted) {
  ValueDefinition value{.kind = "later", .shown = ""};
  value.is_repeatable = true;
  FlagDefinition& definition = flag(std::move(name), std::move(value), "");
  definition.is_later = true;
  definition.later_value = std::move(accepted);
}

}  // namespace darkroom
