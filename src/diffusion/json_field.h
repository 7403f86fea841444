#pragma once

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

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

/// A setting of a scheduler_config.json of which a sampler builds only some values; absent and null are its default.
struct BuiltSetting {
  const char* key;
  std::initializer_list<nlohmann::json> values;
};

/// Checks that `config` asks for nothing but what is built. Errors: kFailedPrecondition naming sampler, key and value.
inline Status check_settings(std::string_view sampler, const nlohmann::json& config, std::initializer_list<BuiltSetting> settings) {
  for (const auto& [key, values] : settings) {
    const auto found = config.find(key);
    if (found != config.end() && !found->is_null() && std::find(values.begin(), values.end(), *found) == values.end()) {
      return Status::failed_precondition("scheduler_config.json: this sampler does not build the setting (sampler, key, value):", sampler,
                                         key, found->dump());
    }
  }
  return Status::ok();
}

}  // namespace darkroom
