#include "darkroom/serve/image_requests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/base64.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/image/png.h"
#include "request_fields.h"

namespace darkroom {
namespace {

/// What every protocol asks for, by whatever names.
struct Wanted {
  std::vector<std::string> prompts = {};
  std::vector<std::string> negatives = {};  ///< One for all, or one per prompt.
  PictureSpec settings = {};
  int64_t images_per_prompt = 1;
};

constexpr int64_t kNestedBytes = 14;  // Of a pixel, at most: "[255,255,255],".

// Short enough for every client to keep it exactly.
uint64_t draw_seed() { return std::random_device()(); }

PictureSpec default_settings(const ModelFacts& model) {
  PictureSpec settings;
  settings.width = model.native_size;
  settings.height = model.native_size;
  return settings;
}

void read_side(RequestFields& fields, const char* name, const ModelFacts& model, const RequestLimits& limits, int& side) {
  if (const auto asked = fields.integer(name, 1, limits.max_side)) {
    side = static_cast<int>(*asked);
    if (side % model.size_multiple != 0) {
      fields.fail(
          Status::invalid_argument(fmt::format("{} must be a multiple of {}, got:", fields.shown(name), model.size_multiple), side));
    }
  }
}

void read_sampler(RequestFields& fields, const char* name, const ModelFacts& model, std::string& sampler) {
  sampler = fields.text(name, 100).value_or(sampler);
  if (!sampler.empty() && std::find(model.samplers.begin(), model.samplers.end(), sampler) == model.samplers.end()) {
    fields.fail(Status::invalid_argument(fmt::format("{} must be one of {}, got:", fields.shown(name), fmt::join(model.samplers, ", ")),
                                         shown_json(sampler)));
  }
}

/// A text, or a list of texts.
std::vector<std::string> read_texts(RequestFields& fields, const char* name, const RequestLimits& limits) {
  std::vector<std::string> texts;
  const nlohmann::json* value = fields.any(name);
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

Result<nlohmann::json> read_object(std::string_view body) {
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

Status fill_request(const Wanted& wanted, const RequestLimits& limits, ImageRequest& request) {
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

// JumpStart: all fields side by side.
Wanted read_prompt_form(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  Wanted wanted{.prompts = read_texts(fields, "prompt", limits),
                .negatives = read_texts(fields, "negative_prompt", limits),
                .settings = default_settings(model)};
  PictureSpec& settings = wanted.settings;
  read_side(fields, "width", model, limits, settings.width);
  read_side(fields, "height", model, limits, settings.height);
  settings.num_steps = static_cast<int>(fields.integer("num_inference_steps", 1, limits.max_steps).value_or(settings.num_steps));
  settings.guidance = fields.number("guidance_scale", 0, limits.max_guidance).value_or(settings.guidance);
  read_sampler(fields, "sampler", model, settings.sampler);
  wanted.images_per_prompt = fields.integer("num_images_per_prompt", 1, limits.max_images).value_or(1);
  settings.seed = fields.seed("seed").value_or(draw_seed());
  return wanted;
}

/// Whichever of two spellings of a field is there; both are a fault.
const char* chosen_spelling(RequestFields& fields, const char* snake, const char* camel) {
  const bool has_snake = fields.any(snake) != nullptr;
  const bool has_camel = fields.any(camel) != nullptr;
  if (has_snake && has_camel) {
    fields.fail(Status::invalid_argument("a field must be given once, not in two spellings:", fields.shown(snake), fields.shown(camel)));
  }
  return has_camel ? camel : snake;
}

// Hugging Face: settings below `parameters`, in snake_case or, as its schema once had them, in camelCase.
void read_parameters(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits, Wanted& wanted) {
  PictureSpec& settings = wanted.settings;
  wanted.negatives = read_texts(fields, chosen_spelling(fields, "negative_prompt", "negativePrompt"), limits);
  const char* const steps = chosen_spelling(fields, "num_inference_steps", "numInferenceSteps");
  settings.num_steps = static_cast<int>(fields.integer(steps, 1, limits.max_steps).value_or(settings.num_steps));
  const char* const guidance = chosen_spelling(fields, "guidance_scale", "guidanceScale");
  settings.guidance = fields.number(guidance, 0, limits.max_guidance).value_or(settings.guidance);
  read_side(fields, "width", model, limits, settings.width);
  read_side(fields, "height", model, limits, settings.height);
  const char* const target = chosen_spelling(fields, "target_size", "targetSize");
  const nlohmann::json* size = fields.any(target);
  if (size != nullptr && !size->is_object()) {
    fields.fail(Status::invalid_argument(fmt::format("{} must be an object, got:", fields.shown(target)), shown_json(*size)));
  } else if (size != nullptr) {
    RequestFields sides(*size, fmt::format("{}.", fields.shown(target)));
    read_side(sides, "width", model, limits, settings.width);
    read_side(sides, "height", model, limits, settings.height);
    sides.refuse_others();
    fields.fail(sides.failure());
  }
  read_sampler(fields, "scheduler", model, settings.sampler);
  settings.seed = fields.seed("seed").value_or(settings.seed);
  fields.refuse_others();
}

Wanted read_inputs_form(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  Wanted wanted{.settings = default_settings(model)};
  if (const auto prompt = fields.text("inputs", limits.max_text_bytes)) {
    wanted.prompts = {*prompt};
  }
  wanted.settings.seed = draw_seed();
  const nlohmann::json* parameters = fields.any("parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    fields.fail(Status::invalid_argument("parameters must be an object, got:", shown_json(*parameters)));
  } else if (parameters != nullptr) {
    RequestFields inner(*parameters, "parameters.");
    read_parameters(inner, model, limits, wanted);
    fields.fail(inner.failure());
  }
  return wanted;
}

/// The types of an Accept header, lower case and without blanks or weights: {"application/json;png", "image/*"}.
std::vector<std::string> accepted_types(std::string_view accept) {
  std::vector<std::string> types;
  for (const char c : ascii_lower(std::string(accept))) {
    if (types.empty() || c == ',') {
      types.emplace_back();
    }
    if (c != ',' && c != ' ' && c != '\t') {
      types.back() += c;
    }
  }
  for (std::string& type : types) {
    type = type.substr(0, type.find(";q="));
  }
  std::erase(types, "");
  return types;
}

// What Accept names first of what can be had.
Result<ReplyForm> choose_form(std::string_view accept, bool is_prompt_form, size_t num_pictures) {
  std::vector<std::string> types = accepted_types(accept);
  if (types.empty()) {
    types.emplace_back("*/*");
  }
  for (const std::string& type : types) {
    const bool is_any = type == "*/*";
    if (type == "application/json;png") {
      return ReplyForm::kBase64Pngs;
    }
    if ((type == "image/png" || type == "image/*" || (is_any && !is_prompt_form)) && num_pictures == 1) {
      return ReplyForm::kPng;
    }
    if (type == "application/json" || type == "application/*" || is_any) {
      return is_prompt_form ? ReplyForm::kNestedArrays : ReplyForm::kBase64Pngs;
    }
  }
  return Status::failed_precondition(
      "pictures come as application/json;png, application/json or, a single one, image/png (pictures asked for, Accept):", num_pictures,
      shown_json(std::string(accept)));
}

void read_size(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits, PictureSpec& settings) {
  const auto size = fields.text("size", 100);
  if (!size || *size == "auto") {
    return;
  }
  int sides[2] = {0, 0};
  const char* const end = size->data() + size->size();
  auto parsed = std::from_chars(size->data(), end, sides[0]);
  const bool has_two = parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == 'x';
  parsed = has_two ? std::from_chars(parsed.ptr + 1, end, sides[1]) : parsed;
  for (const int side : sides) {
    if (!has_two || parsed.ec != std::errc() || parsed.ptr != end || side < 1 || side > limits.max_side ||
        side % model.size_multiple != 0) {
      fields.fail(Status::invalid_argument(
          fmt::format("size must be auto or WIDTHxHEIGHT, multiples of {} up to {}, got:", model.size_multiple, limits.max_side),
          shown_json(*size)));
      return;
    }
  }
  settings.width = sides[0];
  settings.height = sides[1];
}

// Fields of OpenAI's that change nothing here at their defaults.
void read_openai_defaults(RequestFields& fields) {
  fields.only("response_format", {"b64_json"});
  fields.only("output_format", {"png"});
  fields.only("output_compression", {100});
  fields.only("quality", {"auto", "standard"});
  fields.only("background", {"auto", "opaque"});
  fields.only("moderation", {"auto", "low"});
  fields.only("style", {"vivid"});
  fields.only("stream", {false});
  fields.only("partial_images", {0});
  fields.any("user");
}

void add_nested_rows(const Image& image, std::string& text) {
  for (int y = 0; y < image.height; ++y) {
    text += y > 0 ? ",[" : "[[";
    for (int x = 0; x < image.width; ++x) {
      const uint8_t* pixel = image.row(y) + static_cast<ptrdiff_t>(x) * 3;
      fmt::format_to(std::back_inserter(text), "{}[{},{},{}]", x > 0 ? "," : "", pixel[0], pixel[1], pixel[2]);
    }
    text += "]";
  }
  text += "]";
}

void add_images(const std::vector<Image>& images, ReplyForm form, std::string& text) {
  for (const Image& image : images) {
    text += &image == images.data() ? "" : ",";
    if (form == ReplyForm::kNestedArrays) {
      add_nested_rows(image, text);
    } else {
      text += form == ReplyForm::kOpenAi ? R"({"b64_json":")" : "\"";
      text += encode_base64(encode_png(image));
      text += form == ReplyForm::kOpenAi ? R"("})" : "\"";
    }
  }
}

}  // namespace

Result<ImageRequest> read_invocation(std::string_view body, std::string_view accept, const ModelFacts& model, const RequestLimits& limits) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_object(body));
  RequestFields fields(object, "");
  const auto has = [&](const char* name) { return object.contains(name) && !object[name].is_null(); };
  const bool is_prompt_form = has("prompt") || !has("inputs");
  const Wanted wanted = is_prompt_form ? read_prompt_form(fields, model, limits) : read_inputs_form(fields, model, limits);
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  if (wanted.prompts.empty()) {
    return Status::invalid_argument("the request says not what to paint: it needs the field prompt or inputs");
  }
  ImageRequest request;
  request.prompt_json = json_text(object[is_prompt_form ? "prompt" : "inputs"]);
  DARKROOM_RETURN_IF_ERROR(fill_request(wanted, limits, request));
  DARKROOM_ASSIGN_OR_RETURN(request.form, choose_form(accept, is_prompt_form, request.pictures.size()));
  if (request.form == ReplyForm::kNestedArrays && kNestedBytes * request.num_pixels > limits.max_nested_bytes) {
    return Status::failed_precondition(
        "as nested arrays the pictures are larger than replies may be; ask for Accept: application/json;png (bytes, bound):",
        kNestedBytes * request.num_pixels, limits.max_nested_bytes);
  }
  return request;
}

Result<ImageRequest> read_openai_generation(std::string_view body, const ModelFacts& model, const RequestLimits& limits) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_object(body));
  RequestFields fields(object, "");
  Wanted wanted{.settings = default_settings(model)};
  PictureSpec& settings = wanted.settings;
  const auto prompt = fields.text("prompt", limits.max_text_bytes);
  wanted.negatives = {fields.text("negative_prompt", limits.max_text_bytes).value_or("")};
  wanted.images_per_prompt = fields.integer("n", 1, limits.max_images).value_or(1);
  read_size(fields, model, limits, settings);
  settings.num_steps = static_cast<int>(fields.integer("steps", 1, limits.max_steps).value_or(settings.num_steps));
  settings.guidance = fields.number("guidance_scale", 0, limits.max_guidance).value_or(settings.guidance);
  read_sampler(fields, "sampler", model, settings.sampler);
  settings.seed = fields.seed("seed").value_or(draw_seed());
  read_openai_defaults(fields);
  const std::string asked_model = fields.text("model", 1000).value_or(model.name);
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  if (asked_model != model.name) {
    return Status::not_found(fmt::format("this server has the model {} only, not:", shown_json(model.name)), shown_json(asked_model));
  }
  if (!prompt) {
    return Status::invalid_argument("the request needs the field prompt");
  }
  wanted.prompts = {*prompt};
  ImageRequest request{.pictures = {}, .form = ReplyForm::kOpenAi};
  DARKROOM_RETURN_IF_ERROR(fill_request(wanted, limits, request));
  return request;
}

int64_t ImageRequest::bytes_held() const {
  constexpr int64_t kImageBytes = 3;   // PNG needs a few more where nothing can be compressed.
  constexpr int64_t kBase64Bytes = 4;  // Of as many bytes of PNG as of the picture.
  const int64_t of_reply = form == ReplyForm::kNestedArrays ? kNestedBytes
                           : form == ReplyForm::kPng        ? kImageBytes
                                                            : kBase64Bytes + kBase64Bytes;
  return num_pixels * (kImageBytes + of_reply);
}

HttpReply image_reply(const ImageRequest& request, const std::vector<Image>& images, int64_t created) {
  const std::string seed = fmt::format("{}", request.seed);
  // SageMaker hands on only the second of the two.
  HttpReply reply{.headers = {{"X-Darkroom-Seed", seed}, {"X-Amzn-SageMaker-Custom-Attributes", fmt::format("seed={}", seed)}}};
  if (request.form == ReplyForm::kPng) {
    reply.type = "image/png";
    reply.body = encode_png(images.front());
    return reply;
  }
  const bool is_openais = request.form == ReplyForm::kOpenAi;
  reply.body = is_openais ? fmt::format(R"({{"created":{},"data":[)", created) : std::string(R"({"generated_images":[)");
  add_images(images, request.form, reply.body);
  reply.body += is_openais ? std::string("]") : fmt::format(R"(],"prompt":{})", request.prompt_json);
  reply.body += fmt::format(R"(,"seed":{}}})", seed);
  return reply;
}

}  // namespace darkroom
