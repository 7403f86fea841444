#include "request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace darkroom {

std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

std::string shown_json(const nlohmann::json& value) {
  constexpr size_t kMostShown = 80;
  if (value.is_structured() && value.size() > kMostShown) {
    return fmt::format("({} of {})", value.type_name(), value.size());
  }
  std::string text = json_text(value);
  return text.size() <= kMostShown ? text : text.substr(0, kMostShown) + "...";
}

RequestFields::RequestFields(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {}

const nlohmann::json* RequestFields::any(const char* name) {
  asked_.insert(name);
  const auto found = object_.find(name);
  return !failure_.is_ok() || found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> RequestFields::text(const char* name, size_t max_bytes) {
  const nlohmann::json* value = any(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_string() || value->get_ref<const std::string&>().size() > max_bytes) {
    fail(Status::invalid_argument(fmt::format("{} must be a text of at most {} bytes, got:", shown(name), max_bytes), shown_json(*value)));
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::optional<int64_t> RequestFields::integer(const char* name, int64_t least, int64_t most) {
  const nlohmann::json* value = any(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX) : value->is_number_integer();
  if (!fits || value->get<int64_t>() < least || value->get<int64_t>() > most) {
    fail(Status::invalid_argument(fmt::format("{} must be a whole number from {} to {}, got:", shown(name), least, most),
                                  shown_json(*value)));
    return std::nullopt;
  }
  return value->get<int64_t>();
}

std::optional<uint64_t> RequestFields::seed(const char* name) {
  const nlohmann::json* value = any(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number_unsigned()) {
    fail(Status::invalid_argument(fmt::format("{} must be a whole number from 0 to 2^64 - 1, got:", shown(name)), shown_json(*value)));
    return std::nullopt;
  }
  return value->get<uint64_t>();
}

std::optional<double> RequestFields::number(const char* name, double least, double most) {
  const nlohmann::json* value = any(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most)) {
    fail(Status::invalid_argument(fmt::format("{} must be a number from {} to {}, got:", shown(name), least, most), shown_json(*value)));
    return std::nullopt;
  }
  return value->get<double>();
}

void RequestFields::only(const char* name, std::initializer_list<nlohmann::json> defaults) {
  const nlohmann::json* value = any(name);
  if (value != nullptr && std::find(defaults.begin(), defaults.end(), *value) == defaults.end()) {
    fail(Status::invalid_argument(fmt::format("{} is not built; leave it out or give its default, got:", shown(name)), shown_json(*value)));
  }
}

void RequestFields::fail(Status failure) {
  if (failure_.is_ok()) {
    failure_ = std::move(failure);
  }
}

void RequestFields::refuse_others() {
  for (const auto& [name, value] : object_.items()) {
    if (!asked_.contains(name) && !value.is_null()) {
      fail(Status::invalid_argument("this request has no such field:", shown(name.substr(0, 80))));
    }
  }
}

}  // namespace darkroom
