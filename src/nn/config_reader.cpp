#include "config_reader.h"

#include <algorithm>
#include <utility>

namespace darkroom {

using nlohmann::json;

ConfigReader::ConfigReader(const json& config, std::string class_name) : config_(config), class_name_(std::move(class_name)) {
  if (!config_.is_object()) {
    status_ = Status::failed_precondition("read the config of a " + class_name_ + ": want a JSON object, got:", config_.type_name());
  }
}

const json* ConfigReader::find(const std::string& key) {
  known_.insert(key);
  if (failed()) {
    return nullptr;
  }
  const auto field = config_.find(key);
  return field == config_.end() || field->is_null() ? nullptr : &*field;
}

void ConfigReader::refuse(const std::string& key, const std::string& reason) {
  if (!failed()) {
    status_ = Status::failed_precondition("config of a " + class_name_ + ": " + reason + " (field, value):", key,
                                          config_.value(key, json()).dump());
  }
}

void ConfigReader::require_class(const std::string& key) {
  const json* field = find(key);
  if (field == nullptr) {
    return;
  }
  const json name = field->is_array() && field->size() == 1 ? field->front() : *field;
  if (name != class_name_) {
    refuse(key, "this is the config of another model; point to the folder of a " + class_name_);
  }
}

void ConfigReader::read_number(const std::string& key, const json& field, int64_t& value, int64_t minimum) {
  constexpr int64_t kMaximum = int64_t{1} << 24;  // Far above any real width; keeps products of two within 64 bits.
  if (!field.is_number_integer() || field.get<int64_t>() < minimum || field.get<int64_t>() > kMaximum) {
    refuse(key, "want a whole number from " + std::to_string(minimum) + " to " + std::to_string(kMaximum));
    return;
  }
  value = field.get<int64_t>();
}

void ConfigReader::read(const std::string& key, int64_t& value, int64_t minimum) {
  if (const json* field = find(key)) {
    read_number(key, *field, value, minimum);
  }
}

void ConfigReader::read(const std::string& key, double& value) {
  const json* field = find(key);
  if (field == nullptr) {
    return;
  }
  if (!field->is_number()) {
    refuse(key, "want a number");
    return;
  }
  value = field->get<double>();
}

void ConfigReader::read(const std::string& key, bool& value) {
  const json* field = find(key);
  if (field == nullptr) {
    return;
  }
  if (!field->is_boolean()) {
    refuse(key, "want true or false");
    return;
  }
  value = field->get<bool>();
}

void ConfigReader::read(const std::string& key, std::string& value) {
  const json* field = find(key);
  if (field == nullptr) {
    return;
  }
  if (!field->is_string()) {
    refuse(key, "want a text");
    return;
  }
  value = field->get<std::string>();
}

void ConfigReader::read(const std::string& key, std::vector<std::string>& value) {
  const json* field = find(key);
  if (field == nullptr) {
    return;
  }
  if (!field->is_array() || !std::ranges::all_of(*field, [](const json& item) { return item.is_string(); })) {
    refuse(key, "want a list of texts");
    return;
  }
  value = field->get<std::vector<std::string>>();
}

void ConfigReader::read(const std::string& key, std::vector<int64_t>& value, int64_t minimum) {
  const json* field = find(key);
  if (field == nullptr) {
    return;
  }
  constexpr size_t kMostLevels = 32;  // Each halves a picture's side.
  if (!field->is_array() || field->empty() || field->size() > kMostLevels) {
    refuse(key, "want a list of 1 to " + std::to_string(kMostLevels) + " numbers");
    return;
  }
  value.assign(field->size(), 0);
  for (size_t i = 0; i < field->size(); ++i) {
    read_number(key, (*field)[i], value[i], minimum);
  }
}

void ConfigReader::read_levels(const std::string& key, std::vector<int64_t>& value, size_t count, int64_t minimum) {
  const json* field = find(key);
  if (field == nullptr) {
    return;
  }
  if (field->is_array()) {
    read(key, value, minimum);
    if (!failed() && value.size() != count) {
      refuse(key, "want one number, or one a level (" + std::to_string(count) + " levels)");
    }
    return;
  }
  int64_t one = 0;
  read_number(key, *field, one, minimum);
  value.assign(count, one);
}

void ConfigReader::read_size(const std::string& key, int64_t& value) {
  const json* field = find(key);
  if (field == nullptr) {
    return;
  }
  const bool is_square = field->is_array() && field->size() == 2 && (*field)[0] == (*field)[1];
  read_number(key, is_square ? field->front() : *field, value, 1);
}

void ConfigReader::only(const std::string& key, std::initializer_list<json> supported) {
  const json* field = find(key);
  if (field != nullptr && std::ranges::find(supported, *field) == supported.end()) {
    refuse(key, "this value is not supported; supported: " + json(std::vector<json>(supported)).dump());
  }
}

void ConfigReader::ignore(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }

void ConfigReader::refuse_unknown() {
  if (failed()) {
    return;
  }
  for (const auto& [key, value] : config_.items()) {
    const bool harmless = key.starts_with("_") || value.is_null() || value == false;
    if (!harmless && !known_.contains(key)) {
      refuse(key, "unknown field; it may change what the model computes, so the model is not loaded");
      return;
    }
  }
}

}  // namespace darkroom
