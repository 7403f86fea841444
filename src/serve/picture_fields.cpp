#include "picture_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "darkroom/core/nested_text.h"
#include "darkroom/serve/png_settings.h"

namespace darkroom {

uint64_t draw_seed() { return std::random_device()(); }

PictureSpec default_picture(const ModelFacts& model, const RequestLimits& limits) {
  const int largest = std::max(limits.max_side / model.size_multiple, 1) * model.size_multiple;
  PictureSpec settings;
  settings.num_steps = std::min(settings.num_steps, limits.max_steps);
  settings.width = std::min(model.native_size, largest);
  settings.height = settings.width;
  return settings;
}

void read_side(RequestFields& fields, const char* name, const ModelFacts& model, const RequestLimits& limits, int& side) {
  const auto asked = fields.integer(name, 1, limits.max_side);
  fields.describe(name, {{"multipleOf", model.size_multiple}});
  if (asked) {
    side = static_cast<int>(*asked);
    if (side % model.size_multiple != 0) {
      fields.fail(
          Status::invalid_argument(fmt::format("{} must be a multiple of {}, got:", fields.shown(name), model.size_multiple), side));
    }
  }
}

void read_sampler(RequestFields& fields, const char* name, const ModelFacts& model, std::string& sampler) {
  sampler = fields.text(name, 100).value_or(sampler);
  fields.describe(name, {{"enum", model.samplers}});
  if (!sampler.empty() && std::find(model.samplers.begin(), model.samplers.end(), sampler) == model.samplers.end()) {
    fields.fail(Status::invalid_argument(fmt::format("{} must be one of {}, got:", fields.shown(name), fmt::join(model.samplers, ", ")),
                                         shown_json(sampler)));
  }
}

void read_prompt_syntax(RequestFields& fields, PictureSpec& settings) {
  const std::string syntax = fields.text("prompt_syntax", 100).value_or("plain");
  fields.describe("prompt_syntax", {{"enum", {"plain", "weighted"}}});
  if (syntax != "plain" && syntax != "weighted") {
    fields.fail(
        Status::invalid_argument(fmt::format("{} must be plain or weighted, got:", fields.shown("prompt_syntax")), shown_json(syntax)));
  }
  settings.has_weight_syntax = syntax == "weighted";
}

std::vector<InputPicture> read_picture(RequestFields& fields, const char* name) {
  std::optional<std::string> text = fields.text(name, kMaxPictureBodyBytes);  // A body is no longer.
  fields.describe(name, {{"contentEncoding", "base64"}});
  if (!text) {
    return {};
  }
  auto picture = read_picture_text(fields.shown(name), *std::move(text));
  if (!picture.is_ok()) {
    fields.fail(picture.status());
    return {};
  }
  return {*std::move(picture)};
}

std::vector<InputPicture> read_start(RequestFields& fields, const char* name, PictureSpec& settings) {
  std::vector<InputPicture> picture = read_picture(fields, name);
  const auto strength = fields.number("strength", 0, 1);
  if (strength && picture.empty()) {
    fields.fail(Status::invalid_argument(
        fmt::format("{} goes with {}; leave it out, or give a picture to start from, got:", fields.shown("strength"), fields.shown(name)),
        *strength));
  }
  settings.strength = strength.value_or(settings.strength);
  if (!picture.empty()) {
    check_strength(fields, "strength", settings);
  }
  return picture;
}

void check_strength(RequestFields& fields, const char* name, const PictureSpec& settings) {
  if (settings.num_steps_from_image() < 1) {
    fields.fail(Status::invalid_argument(fmt::format("{} must leave at least one of the steps (steps, got):", fields.shown(name)),
                                         settings.num_steps, settings.strength));
  }
}

std::vector<std::string> read_texts(RequestFields& fields, const char* name, const RequestLimits& limits) {
  std::vector<std::string> texts;
  const nlohmann::json text_schema = {{"type", "string"}, {"maxLength", limits.max_text_bytes}};
  const nlohmann::json list_schema = {{"type", "array"}, {"items", text_schema}, {"minItems", 1}, {"maxItems", limits.max_images}};
  const nlohmann::json* value = fields.any(name, {{"anyOf", {text_schema, list_schema}}});
  if (value == nullptr) {
    return texts;
  }
  const auto keep = [&](const nlohmann::json& text) {
    if (!text.is_string() || text.get_ref<const std::string&>().size() > limits.max_text_bytes) {
      fields.fail(Status::invalid_argument(
          fmt::format("{} must be a text of at most {} bytes, or a list of such texts, got:", fields.shown(name), limits.max_text_bytes),
          shown_json(text)));
      return;
    }
    texts.push_back(text.get<std::string>());
  };
  if (!value->is_array()) {
    keep(*value);
  } else if (value->empty() || value->size() > static_cast<size_t>(limits.max_images)) {
    fields.fail(Status::invalid_argument(fmt::format("{} must list from 1 to {} texts, got:", fields.shown(name), limits.max_images),
                                         value->size()));
  } else {
    std::for_each(value->begin(), value->end(), keep);
  }
  return texts;
}

std::optional<std::string> read_model_name(RequestFields& fields) { return fields.text("model", kMaxModelName); }

void read_model(RequestFields& fields, const ModelFacts& model) {
  const auto asked = read_model_name(fields);
  if (asked && *asked != model.name) {
    fields.fail(Status::not_found("this server has no such model:", shown_json(*asked)));
  }
}

std::string named_model(std::string_view body) {
  if (body.find("\"model\"") == std::string_view::npos) {
    return {};
  }
  const auto object = read_json_object(body);
  const auto found = object.is_ok() ? object->find("model") : nlohmann::json::const_iterator();
  const bool is_named =
      object.is_ok() && found != object->end() && found->is_string() && found->get_ref<const std::string&>().size() <= kMaxModelName;
  return is_named ? found->get<std::string>() : std::string();
}

Result<nlohmann::json> read_json_object(std::string_view body) {
  constexpr size_t kMostShown = 200;
  if (json_nests_deeper(body, kMaxJsonDepth)) {
    return Status::invalid_argument("the request's body must be a JSON object that nests at most so deep:", kMaxJsonDepth);
  }
  try {
    nlohmann::json object = nlohmann::json::parse(body);
    if (!object.is_object()) {
      return Status::invalid_argument("the request's body must be a JSON object, got:", object.type_name());
    }
    return object;
  } catch (const nlohmann::json::parse_error& failure) {
    return Status::invalid_argument("the request's body must be a JSON object, and is no JSON, at byte:", failure.byte);
  } catch (const nlohmann::json::exception& failure) {  // A number that no double holds.
    return Status::invalid_argument("the request's body must be a JSON object, and cannot be read:",
                                    std::string_view(failure.what()).substr(0, kMostShown));
  }
}

Status fill_request(const WantedPictures& wanted, const RequestLimits& limits, ImageRequest& request) {
  std::vector<PictureSpec>& pictures = request.pictures;
  const auto num_pictures = static_cast<int64_t>(wanted.prompts.size()) * wanted.images_per_prompt;
  if (num_pictures > limits.max_images) {
    return Status::invalid_argument(fmt::format("a request may ask for {} pictures, of all prompts together, got:", limits.max_images),
                                    num_pictures);
  }
  if (wanted.negatives.size() > 1 && wanted.negatives.size() != wanted.prompts.size()) {
    return Status::invalid_argument("negative_prompt must be one for all prompts or one each (prompts, negative prompts):",
                                    wanted.prompts.size(), wanted.negatives.size());
  }
  for (size_t i = 0; i < wanted.prompts.size(); ++i) {
    for (int64_t j = 0; j < wanted.images_per_prompt; ++j) {
      PictureSpec picture = wanted.settings;
      picture.prompt = wanted.prompts[i];
      picture.negative = wanted.negatives.empty() ? "" : wanted.negatives[wanted.negatives.size() == 1 ? 0 : i];
      picture.seed += static_cast<uint64_t>(j);
      pictures.push_back(std::move(picture));
    }
  }
  request.seed = wanted.settings.seed;
  request.num_pixels = num_pictures * wanted.settings.width * wanted.settings.height;
  return Status::ok();
}

void note_settings(ImageRequest& request, const ModelFacts& model) {
  request.settings_texts.clear();
  for (const PictureSpec& picture : request.pictures) {
    const bool has_input = !request.inputs.empty() || picture.init_image != nullptr;
    request.settings_texts.push_back(settings_text(picture, model, has_input ? std::optional(picture.strength) : std::nullopt));
  }
}

}  // namespace darkroom
