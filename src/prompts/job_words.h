#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "darkroom/core/typing_mistakes.h"
#include "darkroom/toml/toml_fields.h"
#include "job_file.h"

namespace darkroom {

// What the parts of a job file's reader share. Failures' messages go on after the field's name.

/// The name that stands for the prompt as it is.
inline constexpr const char* kNoStyle = "none";

/// "names the style 'foto', which is not there; did you mean 'photo'?" `known` is a map by name.
template <typename Map>
std::string unknown_name(std::string_view kind, const std::string& name, const Map& known) {
  const std::string shown = name.substr(0, 100);
  const std::string text = fmt::format("names {} '{}', which is not there", kind, shown);
  const auto nearest = std::ranges::min_element(known, {}, [&](const auto& entry) { return typing_mistakes(entry.first, shown); });
  return nearest == known.end() ? text : text + fmt::format("; did you mean '{}'?", nearest->first);
}

/// Errors: kInvalidArgument for what is neither number nor text.
Result<FieldValue> toml_value(const toml::node& node);

/// A text without places, its doubled braces single. Errors: kInvalidArgument (a place, a lone brace, more than kMostPromptBytes).
Result<std::string> literal_text(std::string_view text);

using StylesByName = std::map<std::string, PromptStyle, std::less<>>;
/// Null for kNoStyle, and for a style that is not there, which is a failure of the field.
const PromptStyle* find_style(TomlFields& fields, const std::string& key, const std::string& name, const StylesByName& styles);

/// The axis that a job has under `key`. Failures are the job's.
std::optional<GridAxis> read_axis(TomlFields& job, const std::string& key, const JobFile& file, std::span<const std::string> samplers);
/// Whether a job's axes go together and with what else it says. Failures are the job's.
void check_axes(TomlFields& job, const JobEntry& entry);

}  // namespace darkroom
