#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "darkroom/core/status.h"

namespace darkroom {

/// Reads `config[key]` into `value` when the key is there and not null. Errors: kFailedPrecondition for another type.
template <typename T>
Status read_field(const nlohmann::json& config, const char* key, T& value) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    return Status::ok();
  }
  try {
    value = found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    return Status::failed_precondition("scheduler_config.json: a value has the wrong type (key, value):", key, found->dump());
  }
  return Status::ok();
}

template <typename T>
Status read_field(const nlohmann::json& config, const char* key, std::optional<T>& value) {
  T read{};
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    return Status::ok();
  }
  DARKROOM_RETURN_IF_ERROR(read_field(config, key, read));
  value = read;
  return Status::ok();
}

}  // namespace darkroom
