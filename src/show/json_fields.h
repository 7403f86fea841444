#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace darkroom {

/// A number of a JSON object; empty where there is none, or `object` is none.
template <typename T>
std::optional<T> number_in(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) {
    return std::nullopt;
  }
  const auto value = object.find(key);
  return value != object.end() && value->is_number() ? std::optional(value->get<T>()) : std::nullopt;
}

/// A text of a JSON object, likewise.
inline std::string text_in(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) {
    return "";
  }
  const auto value = object.find(key);
  return value != object.end() && value->is_string() ? value->get<std::string>() : "";
}

}  // namespace darkroom
