#include "request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

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

nlohmann::json described_fields(const std::function<void(RequestFields&)>& read) {
  const nlohmann::json nothing = nlohmann::json::object();
  nlohmann::json schema;
  RequestFields fields(nothing, "", &schema);
  read(fields);
  fields.refuse_others();
  return schema;
}

nlohmann::json schema_like(const nlohmann::json& value) {
  if (value.is_object()) {
    nlohmann::json schema = {{"type", "object"}};
    for (const auto& [name, field] : value.items()) {
      schema["properties"][name] = schema_like(field);
      schema["required"].push_back(name);
    }
    return schema;
  }
  if (value.is_array()) {
    return value.empty() ? nlohmann::json{{"type", "array"}} : nlohmann::json{{"type", "array"}, {"items", schema_like(value.front())}};
  }
  if (value.is_number()) {
    return {{"type", value.is_number_integer() ? "integer" : "number"}};
  }
  return {{"type", value.type_name()}};  // string, boolean, null: JSON's names are those of the schema.
}

namespace {

// Whether a text is a value of the schema.
bool takes_text(const nlohmann::json& schema) {
  const nlohmann::json type = schema.value("type", nlohmann::json());
  const nlohmann::json values = schema.value("enum", nlohmann::json::array());
  return type != "integer" && type != "number" && type != "boolean" && (values.empty() || values.front().is_string());
}

// The number or boolean that a text says; any other stays a text, which whoever wants none refuses.
nlohmann::json said_by(const nlohmann::json& text) {
  constexpr size_t kLongestNumber = 32;
  if (!text.is_string() || text.get_ref<const std::string&>().size() > kLongestNumber) {
    return text;
  }
  nlohmann::json value = nlohmann::json::parse(text.get_ref<const std::string&>(), nullptr, /*allow_exceptions=*/false);
  return value.is_number() || value.is_boolean() ? value : text;
}

}  // namespace

RequestFields::RequestFields(const nlohmann::json& object, std::string where, nlohmann::json* schema)
    : object_(object), where_(std::move(where)), schema_(schema) {
  if (schema_ != nullptr) {
    (*schema_)["type"] = "object";
    (*schema_)["properties"] = nlohmann::json::object();
  }
}

RequestFields RequestFields::of_texts(const nlohmann::json& object) {
  RequestFields fields(object, "");
  fields.has_texts_ = true;
  return fields;
}

void RequestFields::describe(const char* name, const nlohmann::json& more) {
  if (schema_ != nullptr) {
    (*schema_)["properties"][name].update(more);
  }
}

const nlohmann::json* RequestFields::any(const char* name, const nlohmann::json& schema) {
  asked_.insert(name);
  describe(name, schema);
  const auto found = object_.find(name);
  if (!failure_.is_ok() || found == object_.end() || found->is_null()) {
    return nullptr;
  }
  return has_texts_ && !takes_text(schema) ? &(said_[name] = said_by(*found)) : &*found;
}

std::optional<std::string> RequestFields::text(const char* name, size_t max_bytes) {
  const nlohmann::json* value = any(name, {{"type", "string"}, {"maxLength", max_bytes}});
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
  const nlohmann::json* value = any(name, {{"type", "integer"}, {"minimum", least}, {"maximum", most}});
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
  const nlohmann::json* value = any(name, {{"type", "integer"}, {"minimum", 0}, {"maximum", UINT64_MAX}});
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
  const nlohmann::json* value = any(name, {{"type", "number"}, {"minimum", least}, {"maximum", most}});
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most)) {
    fail(Status::invalid_argument(fmt::format("{} must be a number from {} to {}, got:", shown(name), least, most), shown_json(*value)));
    return std::nullopt;
  }
  return value->get<double>();
}

std::optional<bool> RequestFields::boolean(const char* name) {
  const nlohmann::json* value = any(name, {{"type", "boolean"}});
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_boolean()) {
    fail(Status::invalid_argument(fmt::format("{} must be true or false, got:", shown(name)), shown_json(*value)));
    return std::nullopt;
  }
  return value->get<bool>();
}

void RequestFields::object(const char* name, const std::function<void(RequestFields&)>& read) {
  const nlohmann::json* value = any(name, {{"type", "object"}});
  if (value != nullptr && !value->is_object()) {
    fail(Status::invalid_argument(fmt::format("{} must be an object, got:", shown(name)), shown_json(*value)));
    return;
  }
  if (value == nullptr && schema_ == nullptr) {
    return;
  }
  static const nlohmann::json nothing = nlohmann::json::object();
  RequestFields inner(value != nullptr ? *value : nothing, fmt::format("{}.", shown(name)),
                      schema_ != nullptr ? &(*schema_)["properties"][name] : nullptr);
  read(inner);
  inner.refuse_others();
  fail(inner.failure());
}

const char* RequestFields::spelling(const char* snake, const char* camel) {
  const bool has_snake = any(snake) != nullptr;
  const bool has_camel = any(camel, {{"description", fmt::format("Another spelling of {}.", snake)}}) != nullptr;
  if (has_snake && has_camel) {
    fail(Status::invalid_argument("a field must be given once, not in two spellings:", shown(snake), shown(camel)));
  }
  return has_camel ? camel : snake;
}

void RequestFields::need(const char* name) {
  if (schema_ != nullptr) {
    (*schema_)["required"].push_back(name);
  } else if (any(name) == nullptr) {
    fail(Status::invalid_argument("the request needs the field", shown(name)));
  }
}

void RequestFields::only(const char* name, std::initializer_list<nlohmann::json> defaults) {
  const nlohmann::json* value =
      any(name, defaults.size() == 0 ? nlohmann::json{{"type", "null"}} : nlohmann::json{{"enum", std::vector<nlohmann::json>(defaults)}});
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
  if (schema_ != nullptr) {
    (*schema_)["additionalProperties"] = false;
  }
  for (const auto& [name, value] : object_.items()) {
    if (!asked_.contains(name) && !value.is_null()) {
      fail(Status::invalid_argument("this request has no such field:", shown(name.substr(0, 80))));
    }
  }
}

}  // namespace darkroom
