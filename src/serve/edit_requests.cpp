#include "darkroom/serve/edit_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/utf8.h"
#include "multipart.h"
#include "openai_fields.h"

namespace darkroom {
namespace {

constexpr size_t kMostQueryFields = 32;
constexpr std::string_view kFormType = "multipart/";
Status add_text(const std::string& name, const std::string& text, nlohmann::json& object) {
  if (replace_invalid_utf8(name).second || replace_invalid_utf8(text).second) {
    return Status::invalid_argument("a field must be UTF-8:", name.substr(0, 80));
  }
  if (!object.emplace(name, text).second) {
    return Status::invalid_argument("a field must be given once:", name.substr(0, 80));
  }
  return Status::ok();
}

// Where the picture may stand.
constexpr std::array kPicturesOfForms = {"image", "image[]"};
constexpr std::array kPicturesOfJson = {"image", "images"};

bool is_image_field(std::string_view name) { return std::ranges::find(kPicturesOfForms, name) != kPicturesOfForms.end(); }

bool is_form(std::string_view content_type) { return ascii_lower(std::string(content_type.substr(0, kFormType.size()))) == kFormType; }

Status read_image_part(const FormPart& part, std::vector<InputPicture>& inputs) {
  if (part.is_file) {
    inputs.push_back({.field = part.name, .text = std::string(part.body)});
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(InputPicture picture, read_picture_text(part.name, std::string(part.body)));
  inputs.push_back(std::move(picture));
  return Status::ok();
}

// Pictures go to `inputs`, all else to the object.
Result<nlohmann::json> read_edit_form(std::string_view content_type, std::string_view body, std::vector<InputPicture>& inputs) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string boundary, form_boundary(content_type));
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FormPart> parts, read_form(body, boundary));
  nlohmann::json object = nlohmann::json::object();
  for (const FormPart& part : parts) {
    if (is_image_field(part.name)) {
      DARKROOM_RETURN_IF_ERROR(read_image_part(part, inputs));
    } else if (part.is_file && part.name != "mask") {
      return Status::invalid_argument("this form has a file that the request has no field for:", part.name.substr(0, 80));
    } else {
      DARKROOM_RETURN_IF_ERROR(add_text(part.name, part.is_file ? "a file" : std::string(part.body), object));
    }
  }
  return object;
}

// A text, {"image_url": text}, or a list of one of them.
Status take_json_picture(const std::string& name, nlohmann::json& value, std::vector<InputPicture>& inputs) {
  if (value.is_array()) {
    if (value.size() > 1) {
      return Status::invalid_argument(fmt::format("{} must be one picture, or a list of one, got so many:", name), value.size());
    }
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i].is_array()) {
        return Status::invalid_argument(fmt::format("{} must be a list of pictures, got a list within it at:", name), i);
      }
      DARKROOM_RETURN_IF_ERROR(take_json_picture(fmt::format("{}[{}]", name, i), value[i], inputs));
    }
    return Status::ok();
  }
  nlohmann::json* text = &value;
  if (value.is_object() && value.size() == 1 && value.contains("image_url")) {
    text = &value["image_url"];
  }
  if (!text->is_string()) {
    return Status::invalid_argument(fmt::format("{} must be a picture in base64, or {{\"image_url\": \"data:...\"}}, got:", name),
                                    shown_json(value));
  }
  DARKROOM_ASSIGN_OR_RETURN(InputPicture picture, read_picture_text(name, std::move(text->get_ref<std::string&>())));
  inputs.push_back(std::move(picture));
  return Status::ok();
}

nlohmann::json json_picture_schema() {
  const nlohmann::json text = {{"type", "string"}, {"contentEncoding", "base64"}};
  const nlohmann::json by_url = {{"type", "object"}, {"properties", {{"image_url", text}}}, {"required", {"image_url"}}};
  const nlohmann::json list = {{"type", "array"}, {"items", {{"anyOf", {text, by_url}}}}, {"maxItems", 1}};
  return {{"anyOf", {text, by_url, list}}};
}

// OpenAI's fields of edits and ours, but for the picture.
OpenAiFields read_edit_settings(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  OpenAiFields asked = read_openai_fields(fields, model, limits);
  PictureSpec& settings = asked.wanted.settings;
  settings.strength = fields.number("strength", 0, 1).value_or(settings.strength);
  fields.only("mask", {});
  fields.only("input_fidelity", {"low"});
  check_strength(fields, "strength", settings);
  return asked;
}

// The pictures of a form have been taken out of it (read_edit_form).
OpenAiFields read_form_fields(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  for (const char* name : kPicturesOfForms) {
    fields.any(name, {{"type", "string"}, {"contentMediaType", "image/*"}});
  }
  return read_edit_settings(fields, model, limits);
}

// Their texts are taken out of the body, which may be long.
OpenAiFields read_json_fields(RequestFields& fields, nlohmann::json& object, const ModelFacts& model, const RequestLimits& limits) {
  std::vector<InputPicture> inputs;
  for (const char* name : kPicturesOfJson) {
    if (fields.any(name, json_picture_schema()) != nullptr) {
      fields.fail(take_json_picture(name, object[name], inputs));
    }
  }
  OpenAiFields asked = read_edit_settings(fields, model, limits);
  asked.wanted.inputs = std::move(inputs);
  return asked;
}

Result<ImageRequest> edit_of(RequestFields& fields, OpenAiFields asked, const RequestLimits& limits) {
  fields.refuse_others();
  if (asked.wanted.inputs.size() != 1) {
    fields.fail(Status::invalid_argument("the request needs one picture in the field image, got so many:", asked.wanted.inputs.size()));
  }
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  ImageRequest request{.pictures = {}, .form = asked.is_streamed ? ReplyForm::kOpenAiEvents : ReplyForm::kOpenAi};
  request.num_partial_images = asked.num_partial_images;
  PictureSpec& settings = asked.wanted.settings;
  settings.preview_every = preview_distance(settings.num_steps_from_image(), asked.num_partial_images);
  DARKROOM_RETURN_IF_ERROR(fill_request(asked.wanted, limits, request));
  request.inputs = std::move(asked.wanted.inputs);
  return request;
}

WantedPictures read_imagine_fields(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  WantedPictures wanted{.prompts = {fields.text("prompt", limits.max_text_bytes).value_or("")},
                        .negatives = {fields.text("negative_prompt", limits.max_text_bytes).value_or("")},
                        .settings = default_picture(model, limits)};
  PictureSpec& settings = wanted.settings;
  read_side(fields, "img_size", model, limits, settings.width);
  settings.height = settings.width;
  settings.num_steps = static_cast<int>(fields.integer("steps", 1, limits.max_steps).value_or(settings.num_steps));
  settings.guidance = fields.number("guidance_scale", 0, limits.max_guidance).value_or(settings.guidance);
  read_sampler(fields, "sampler", model, settings.sampler);
  settings.seed = fields.seed("seed").value_or(draw_seed());
  read_model(fields, model);
  return wanted;
}

// Either of the two fields must be there.
nlohmann::json with_one_of(nlohmann::json schema, const std::array<const char*, 2>& names) {
  for (const char* name : names) {
    schema["anyOf"].push_back({{"required", {name}}});
  }
  return schema;
}

// "a%20b+c" -> "a b c". Errors: kInvalidArgument: a % that is no escape.
Result<std::string> form_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
  };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const int high = i + 1 < text.size() ? digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      return Status::invalid_argument("in the query a % must begin an escape of two hexadecimal digits, got:", text.substr(i, 3));
    }
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

}  // namespace

Result<nlohmann::json> read_query(std::string_view query) {
  nlohmann::json object = nlohmann::json::object();
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(field.size() + 1, query.size()));
    if (field.empty()) {
      continue;
    }
    const size_t equals = std::min(field.find('='), field.size());
    DARKROOM_ASSIGN_OR_RETURN(const std::string name, form_decoded(field.substr(0, equals)));
    DARKROOM_ASSIGN_OR_RETURN(const std::string text, form_decoded(field.substr(std::min(equals + 1, field.size()))));
    DARKROOM_RETURN_IF_ERROR(add_text(name, text, object));
    if (object.size() > kMostQueryFields) {
      return Status::invalid_argument("a query may have so many fields:", kMostQueryFields);
    }
  }
  return object;
}

std::string edit_model(std::string_view content_type, std::string_view body) {
  if (!is_form(content_type)) {
    return named_model(body);
  }
  const auto boundary = form_boundary(content_type);
  const auto parts = boundary.is_ok() ? read_form(body, *boundary) : Result<std::vector<FormPart>>(boundary.status());
  for (const FormPart& part : parts.is_ok() ? *parts : std::vector<FormPart>()) {
    if (part.name == "model" && !part.is_file) {
      return part.body.size() <= kMaxModelName ? std::string(part.body) : std::string();
    }
  }
  return {};
}

std::string query_model(std::string_view query) {
  const auto object = read_query(query);
  if (!object.is_ok()) {
    return {};
  }
  RequestFields fields = RequestFields::of_texts(*object);
  return read_model_name(fields).value_or("");
}

Result<ImageRequest> read_openai_edit(std::string_view content_type, std::string_view body, const ModelFacts& model,
                                      const RequestLimits& limits) {
  if (is_form(content_type)) {
    std::vector<InputPicture> inputs;
    DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_edit_form(content_type, body, inputs));
    RequestFields fields = RequestFields::of_texts(object);
    OpenAiFields asked = read_form_fields(fields, model, limits);
    asked.wanted.inputs = std::move(inputs);
    return edit_of(fields, std::move(asked), limits);
  }
  DARKROOM_ASSIGN_OR_RETURN(nlohmann::json object, read_json_object(body));
  RequestFields fields(object, "");
  OpenAiFields asked = read_json_fields(fields, object, model, limits);
  return edit_of(fields, std::move(asked), limits);
}

nlohmann::json openai_edit_form_schema(const ModelFacts& model, const RequestLimits& limits) {
  return with_one_of(described_fields([&](RequestFields& fields) { read_form_fields(fields, model, limits); }), kPicturesOfForms);
}

nlohmann::json openai_edit_json_schema(const ModelFacts& model, const RequestLimits& limits) {
  nlohmann::json nothing = nlohmann::json::object();
  return with_one_of(described_fields([&](RequestFields& fields) { read_json_fields(fields, nothing, model, limits); }), kPicturesOfJson);
}

Result<ImageRequest> read_imagine(std::string_view query, const ModelFacts& model, const RequestLimits& limits) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_query(query));
  RequestFields fields = RequestFields::of_texts(object);
  const WantedPictures wanted = read_imagine_fields(fields, model, limits);
  fields.refuse_others();
  if (wanted.prompts.front().empty()) {
    fields.fail(Status::invalid_argument("the query needs a prompt: /imagine?prompt=a%20red%20apple"));
  }
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  ImageRequest request;
  DARKROOM_RETURN_IF_ERROR(fill_request(wanted, limits, request));
  return request;
}

nlohmann::json imagine_schema(const ModelFacts& model, const RequestLimits& limits) {
  nlohmann::json schema = described_fields([&](RequestFields& fields) { read_imagine_fields(fields, model, limits); });
  schema["required"] = {"prompt"};  // What says so when it is missing has words of its own.
  return schema;
}

}  // namespace darkroom
