#include "darkroom/toml/parse_toml.h"

#include <fmt/format.h>

#include <string>

#include "darkroom/core/nested_text.h"

namespace darkroom {

Result<toml::table> parse_toml(std::string_view text, std::string_view name) {
  DARKROOM_RETURN_IF_ERROR(check_toml_keys(text).with_context(name));
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const toml::source_position place = error.source().begin;
    return Status::invalid_argument(
        fmt::format("{}, line {}, column {}: this is no TOML: {}", name, place.line, place.column, std::string(error.description())));
  }
}

}  // namespace darkroom
