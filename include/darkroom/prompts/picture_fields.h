#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// Every field of a picture that its user chooses, as plain data; the defaults are those of `sample`.
struct PictureFields {
  std::string prompt = {};
  std::string negative = {};            ///< What guidance leads away from.
  uint64_t seed = 0;                    ///< Of the noise.
  std::string sampler = {};             ///< Empty: the model's scheduler.
  uint64_t steps = 50;                  ///< At least 1.
  double guidance = 7.5;                ///< Finite; at most 1: none.
  double guidance_rescale = 0;          ///< From 0 to 1.
  double eta = 0;                       ///< From 0 to 1.
  uint64_t width = 0;                   ///< Pixels; 0: the model's.
  uint64_t height = 0;                  ///< As width.
  std::string prompt_syntax = "plain";  ///< "plain" or "weighted".
  std::string long_prompts = "auto";    ///< "auto", "truncate" or "chunks".
  std::string init_image = {};          ///< Path of a picture to start from; empty: none.
  double strength = 0.8;                ///< Above 0, at most 1.

  bool operator==(const PictureFields&) const = default;
};

/// A value of a field. Whole numbers from 0 on are uint64_t, all others double.
using FieldValue = std::variant<uint64_t, double, std::string>;

/// The fields' names: PictureFields' own, in their order.
std::span<const std::string> picture_field_names();

/// Sets a field, or both sides by "size" ("512x768"), to a value that it takes. `samplers` are the names of samplers; none: any.
/// Errors: kInvalidArgument, whose message goes on after the field's name: "must be a whole number from 1, got: 0".
/// REQUIRES: `name` is "size" or one of picture_field_names().
Status set_picture_field(PictureFields& fields, std::string_view name, const FieldValue& value, std::span<const std::string> samplers = {});

/// REQUIRES: `name` is one of picture_field_names().
FieldValue picture_field(const PictureFields& fields, std::string_view name);

/// As people write it: the shortest text of a number, a text without quotes.
std::string field_text(const FieldValue& value);

/// An object of all fields, in their order.
nlohmann::ordered_json picture_fields_to_json(const PictureFields& fields);

/// Takes what picture_fields_to_json gives; other keys are the caller's. Errors: kInvalidArgument (a field that is missing or takes no such
/// value) naming it.
Result<PictureFields> picture_fields_from_json(const nlohmann::ordered_json& object);

}  // namespace darkroom
