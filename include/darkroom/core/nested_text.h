#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "darkroom/core/status.h"

namespace darkroom {

/// How deep the JSON of strangers may nest. nlohmann reads any depth without recursion, but copies, prints and destroys what it
/// has read with recursion, so that a few hundred thousand brackets would overflow the stack.
inline constexpr int kMaxJsonDepth = 128;

/// Whether lists and objects of `text` lie more than `max_depth` deep in each other. For text that is no JSON, an answer that
/// holds up to its first fault. Takes linear time.
bool json_nests_deeper(std::string_view text, int max_depth);

/// What `text` says, or a discarded value (no object, no list) where it is no JSON or nests deeper than kMaxJsonDepth. Every
/// reader of bytes from outside parses with this, or holds to kMaxJsonDepth itself. `Json` is a nlohmann::basic_json.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text) {
  return json_nests_deeper(text, kMaxJsonDepth) ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

/// The number of a JSON integer. nlohmann's own conversion takes 2.7 and 1e49, too: the one loses what it was, the other is undefined
/// behaviour. Throws nlohmann::json::type_error, as its conversions do, for what is no integer or does not fit.
template <typename Json>
int64_t whole_number(const Json& json) {
  const bool fits =
      json.is_number_unsigned() ? json.template get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX) : json.is_number_integer();
  if (!fits) {
    throw Json::type_error::create(302, "a whole number of 64 bits is wanted, got " + Json(json).dump(), &json);
  }
  return json.template get<int64_t>();
}

/// The whole numbers of a JSON object by their names. Throws as whole_number().
template <typename Json>
std::map<std::string, int64_t> whole_numbers(const Json& object) {
  std::map<std::string, int64_t> numbers;
  for (const auto& [name, number] : object.template get_ref<const typename Json::object_t&>()) {
    numbers[name] = whole_number(number);
  }
  return numbers;
}

/// How many parts the dotted key a.b.c of a TOML file may have. Each part is a table in a table, which toml++ destroys with
/// recursion; it bounds only how deep values nest.
inline constexpr int kMaxTomlKeyParts = 16;

/// Checks the keys of TOML text before it is parsed. Errors: kInvalidArgument naming the line of a key with more parts.
Status check_toml_keys(std::string_view text);

}  // namespace darkroom
