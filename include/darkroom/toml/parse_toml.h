#pragma once

#include <string_view>

#include <toml++/toml.h>

#include "darkroom/core/result.h"

namespace darkroom {

/// The tables of a user's TOML text. `name` is how messages call it: the path of its file.
/// Errors: kInvalidArgument naming file, line and what is wrong there: no TOML ("NAME, line N, column M: this is no TOML: ..."), or a key
/// of more than kMaxTomlKeyParts parts (core/nested_text.h), which is found before the text is parsed.
Result<toml::table> parse_toml(std::string_view text, std::string_view name);

}  // namespace darkroom
