#include "darkroom/prompts/picture_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr uint64_t kMostSteps = 1'000'000;
constexpr uint64_t kMostPixels = 1'000'000;  // A side; what a model takes is less.

/// A number that a field takes.
struct Bounds {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
  bool is_above_least = false;
};

struct Field {
  std::string name;
  std::variant<uint64_t PictureFields::*, double PictureFields::*, std::string PictureFields::*> member;
  Bounds bounds = {};
  std::vector<std::string> words = {};  // That a text may be; none: any text.
};

const std::vector<Field>& all_fields() {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  static const std::vector<Field> fields = {
      {.name = "prompt", .member = &PictureFields::prompt},
      {.name = "negative", .member = &PictureFields::negative},
      {.name = "seed", .member = &PictureFields::seed},
      {.name = "sampler", .member = &PictureFields::sampler},
      {.name = "steps", .member = &PictureFields::steps, .bounds = {.least = 1, .most = kMostSteps}},
      {.name = "guidance", .member = &PictureFields::guidance, .bounds = {.least = -kAny}},
      {.name = "guidance_rescale", .member = &PictureFields::guidance_rescale, .bounds = {.most = 1}},
      {.name = "eta", .member = &PictureFields::eta, .bounds = {.most = 1}},
      {.name = "width", .member = &PictureFields::width, .bounds = {.most = kMostPixels}},
      {.name = "height", .member = &PictureFields::height, .bounds = {.most = kMostPixels}},
      {.name = "prompt_syntax", .member = &PictureFields::prompt_syntax, .words = {"plain", "weighted"}},
      {.name = "long_prompts", .member = &PictureFields::long_prompts, .words = {"auto", "truncate", "chunks"}},
      {.name = "init_image", .member = &PictureFields::init_image},
      {.name = "strength", .member = &PictureFields::strength, .bounds = {.most = 1, .is_above_least = true}},
  };
  return fields;
}

const Field& find_field(std::string_view name) {
  const auto found = std::ranges::find(all_fields(), name, &Field::name);
  DARKROOM_CHECK(found != all_fields().end(), "a picture has no such field:", name);
  return *found;
}

std::string shown_value(const FieldValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? field_text(value) : fmt::format("'{}'", text->substr(0, 100));
}

Status refusal(const std::string& wanted, const FieldValue& value) {
  return Status::invalid_argument(fmt::format("must be {}, got:", wanted), shown_value(value));
}

std::string wanted_number(std::string_view kind, const Bounds& bounds) {
  std::string text(kind);
  if (std::isfinite(bounds.least)) {
    text += fmt::format(" {} {}", bounds.is_above_least ? "above" : "from", bounds.least);
  }
  return std::isfinite(bounds.most) ? text + fmt::format(" to {}", bounds.most) : text;
}

bool holds(const Bounds& bounds, double value) {
  return std::isfinite(value) && (bounds.is_above_least ? value > bounds.least : value >= bounds.least) && value <= bounds.most;
}

Status set(PictureFields& fields, const Field& field, uint64_t PictureFields::*member, const FieldValue& value) {
  const auto* number = std::get_if<uint64_t>(&value);
  if (number == nullptr || !holds(field.bounds, static_cast<double>(*number))) {
    return refusal(wanted_number("a whole number", field.bounds), value);
  }
  fields.*member = *number;
  return Status::ok();
}

Status set(PictureFields& fields, const Field& field, double PictureFields::*member, const FieldValue& value) {
  const auto* whole = std::get_if<uint64_t>(&value);
  const auto* number = std::get_if<double>(&value);
  const double got = whole != nullptr ? static_cast<double>(*whole) : number != nullptr ? *number : std::nan("");
  if (!holds(field.bounds, got)) {
    return refusal(wanted_number("a number", field.bounds), value);
  }
  fields.*member = got;
  return Status::ok();
}

Status set(PictureFields& fields, const Field& field, std::string PictureFields::*member, const FieldValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) {
    return refusal("a text in quotes", value);
  }
  if (!field.words.empty() && std::ranges::find(field.words, *text) == field.words.end()) {
    return refusal(fmt::format("one of {}", fmt::join(field.words, ", ")), value);
  }
  if (text->find('\0') != std::string::npos) {
    return Status::invalid_argument("must not hold a NUL character");  // No text of a PNG may.
  }
  fields.*member = *text;
  return Status::ok();
}

std::optional<uint64_t> side_of(std::string_view text) {
  uint64_t side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  const bool is_good = error == std::errc() && end == text.data() + text.size() && side > 0 && side <= kMostPixels;
  return is_good ? std::optional(side) : std::nullopt;
}

Status set_size(PictureFields& fields, const FieldValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  const size_t cross = text == nullptr ? std::string::npos : text->find('x');
  const auto width = cross == std::string::npos ? std::nullopt : side_of(std::string_view(*text).substr(0, cross));
  const auto height = cross == std::string::npos ? std::nullopt : side_of(std::string_view(*text).substr(cross + 1));
  if (!width || !height) {
    return refusal("a size in quotes such as \"512x768\"", value);
  }
  fields.width = *width;
  fields.height = *height;
  return Status::ok();
}

Result<FieldValue> json_value(const nlohmann::ordered_json& value) {
  if (value.is_number_unsigned()) {
    return FieldValue(value.get<uint64_t>());
  }
  if (value.is_number()) {
    return FieldValue(value.get<double>());
  }
  if (value.is_string()) {
    return FieldValue(value.get<std::string>());
  }
  return Status::invalid_argument("must be a number or a text");
}

}  // namespace

std::span<const std::string> picture_field_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Field& field : all_fields()) {
      all.push_back(field.name);
    }
    return all;
  }();
  return names;
}

Status set_picture_field(PictureFields& fields, std::string_view name, const FieldValue& value, std::span<const std::string> samplers) {
  if (name == "size") {
    return set_size(fields, value);
  }
  const auto* text = std::get_if<std::string>(&value);
  if (name == "sampler" && text != nullptr && !samplers.empty() && std::ranges::find(samplers, *text) == samplers.end()) {
    return refusal(fmt::format("one of {}", fmt::join(samplers, ", ")), value);
  }
  const Field& field = find_field(name);
  return std::visit([&](auto member) { return set(fields, field, member, value); }, field.member);
}

FieldValue picture_field(const PictureFields& fields, std::string_view name) {
  return std::visit([&](auto member) { return FieldValue(fields.*member); }, find_field(name).member);
}

std::string field_text(const FieldValue& value) {
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
}

nlohmann::ordered_json picture_fields_to_json(const PictureFields& fields) {
  auto object = nlohmann::ordered_json::object();
  for (const Field& field : all_fields()) {
    std::visit([&](auto member) { object[field.name] = fields.*member; }, field.member);
  }
  return object;
}

Result<PictureFields> picture_fields_from_json(const nlohmann::ordered_json& object) {
  PictureFields fields;
  for (const std::string& name : picture_field_names()) {
    const auto found = object.find(name);
    if (found == object.end()) {
      return Status::invalid_argument(name + " is missing");
    }
    const Result<FieldValue> value = json_value(*found);
    const Status status = value.is_ok() ? set_picture_field(fields, name, *value) : value.status();
    if (!status.is_ok()) {
      return Status::invalid_argument(name + " " + status.message());
    }
  }
  return fields;
}

}  // namespace darkroom
