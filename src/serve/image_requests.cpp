#include "darkroom/serve/image_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/base64.h"
#include "darkroom/core/utf8.h"
#include "darkroom/image/jpeg.h"
#include "darkroom/image/png.h"
#include "darkroom/serve/png_settings.h"
#include "openai_fields.h"
#include "picture_finish.h"
#include "picture_orders.h"

namespace darkroom {
namespace {

constexpr int64_t kImageBytes = 3;    // Of a pixel. PNG needs a few more where nothing can be compressed, JPEG less.
constexpr int64_t kNestedBytes = 14;  // Of a pixel, at most: "[255,255,255],".

// What all forms of invocations have alike.
void read_own_fields(RequestFields& fields, const RequestLimits& limits, WantedPictures& wanted) {
  wanted.settings.preview_every = static_cast<int>(fields.integer("preview_every", 0, limits.max_steps).value_or(0));
  read_prompt_syntax(fields, wanted.settings);
  fields.only("mask_image", {});
}

// JumpStart: all fields side by side.
WantedPictures read_prompt_form(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  WantedPictures wanted{.prompts = read_texts(fields, "prompt", limits),
                        .negatives = read_texts(fields, "negative_prompt", limits),
                        .settings = default_picture(model, limits)};
  PictureSpec& settings = wanted.settings;
  read_side(fields, "width", model, limits, settings.width);
  read_side(fields, "height", model, limits, settings.height);
  settings.num_steps = static_cast<int>(fields.integer("num_inference_steps", 1, limits.max_steps).value_or(settings.num_steps));
  settings.guidance = fields.number("guidance_scale", 0, limits.max_guidance).value_or(settings.guidance);
  read_sampler(fields, "sampler", model, settings.sampler);
  wanted.images_per_prompt = fields.integer("num_images_per_prompt", 1, limits.max_images).value_or(1);
  settings.seed = fields.seed("seed").value_or(draw_seed());
  read_own_fields(fields, limits, wanted);
  wanted.inputs = read_start(fields, "image", settings);  // As in diffusers' pipelines and JumpStart's models.
  read_model(fields, model);
  return wanted;
}

// Hugging Face: settings below `parameters`, in snake_case or, as its schema once had them, in camelCase.
void read_parameters(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits, WantedPictures& wanted) {
  PictureSpec& settings = wanted.settings;
  wanted.negatives = read_texts(fields, fields.spelling("negative_prompt", "negativePrompt"), limits);
  const char* const steps = fields.spelling("num_inference_steps", "numInferenceSteps");
  settings.num_steps = static_cast<int>(fields.integer(steps, 1, limits.max_steps).value_or(settings.num_steps));
  const char* const guidance = fields.spelling("guidance_scale", "guidanceScale");
  settings.guidance = fields.number(guidance, 0, limits.max_guidance).value_or(settings.guidance);
  read_side(fields, "width", model, limits, settings.width);
  read_side(fields, "height", model, limits, settings.height);
  const char* const target = fields.spelling("target_size", "targetSize");
  fields.object(target, [&](RequestFields& sides) {
    read_side(sides, "width", model, limits, settings.width);
    read_side(sides, "height", model, limits, settings.height);
  });
  read_sampler(fields, "scheduler", model, settings.sampler);
  const char* const images = fields.spelling("num_images_per_prompt", "numImagesPerPrompt");
  wanted.images_per_prompt = fields.integer(images, 1, limits.max_images).value_or(1);
  settings.seed = fields.seed("seed").value_or(settings.seed);
  read_own_fields(fields, limits, wanted);
}

WantedPictures read_inputs_form(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  WantedPictures wanted{.settings = default_picture(model, limits)};
  if (const auto prompt = fields.text("inputs", limits.max_text_bytes)) {
    wanted.prompts = {*prompt};
  }
  wanted.settings.seed = draw_seed();
  fields.object("parameters", [&](RequestFields& parameters) {
    read_parameters(parameters, model, limits, wanted);
    wanted.inputs = read_start(parameters, "image", wanted.settings);
  });
  read_model(fields, model);
  return wanted;
}

// Hugging Face's image to image: `inputs` is the picture, and the prompt is among the parameters.
WantedPictures read_picture_form(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  WantedPictures wanted{.settings = default_picture(model, limits)};
  PictureSpec& settings = wanted.settings;
  settings.seed = draw_seed();
  fields.need("inputs");
  fields.need("parameters");
  fields.object("parameters", [&](RequestFields& parameters) {
    parameters.need("prompt");
    wanted.prompts = {parameters.text("prompt", limits.max_text_bytes).value_or("")};
    read_parameters(parameters, model, limits, wanted);
    settings.strength = parameters.number("strength", 0, 1).value_or(settings.strength);
    check_strength(parameters, "strength", settings);
  });
  wanted.inputs = read_picture(fields, "inputs");
  read_model(fields, model);
  return wanted;
}

/// Who has written the body of an invocation, by the fields that it has.
enum class InvocationForm { kPrompt, kInputs, kPicture };

InvocationForm form_of(const nlohmann::json& object) {
  const auto has = [](const nlohmann::json& fields, const char* name) { return fields.contains(name) && !fields[name].is_null(); };
  if (has(object, "prompt") || !has(object, "inputs")) {
    return InvocationForm::kPrompt;
  }
  const bool has_prompt = has(object, "parameters") && has(object["parameters"], "prompt");
  return has_prompt ? InvocationForm::kPicture : InvocationForm::kInputs;
}

WantedPictures read_form(InvocationForm form, RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  switch (form) {
    case InvocationForm::kPrompt:
      return read_prompt_form(fields, model, limits);
    case InvocationForm::kInputs:
      return read_inputs_form(fields, model, limits);
    case InvocationForm::kPicture:
      break;
  }
  return read_picture_form(fields, model, limits);
}

const nlohmann::json& prompt_of(InvocationForm form, const nlohmann::json& object) {
  const bool is_picture = form == InvocationForm::kPicture;
  return is_picture ? object["parameters"]["prompt"] : object[form == InvocationForm::kPrompt ? "prompt" : "inputs"];
}

/// A type without its weight, character set and the like: "application/json;png" of "application/json;png;charset=utf-8;q=0.9".
std::string without_named_parameters(std::string_view type) {
  std::string kept;
  for (size_t begin = 0; begin < type.size();) {
    const size_t end = std::min(type.find(';', begin), type.size());
    const std::string_view part = type.substr(begin, end - begin);
    if (part.find('=') == std::string_view::npos) {
      kept += kept.empty() ? std::string(part) : fmt::format(";{}", part);
    }
    begin = end + 1;
  }
  return kept;
}

/// The types of an Accept header, lower case and without blanks: {"application/json;png", "image/*"}.
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
    type = without_named_parameters(type);
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
    if (type == "text/event-stream") {
      return ReplyForm::kEvents;
    }
    if (type == "application/json;png") {
      return ReplyForm::kBase64Pngs;
    }
    if (type == "application/json;jpeg") {
      return ReplyForm::kBase64Jpegs;
    }
    if ((type == "image/png" || type == "image/*") && num_pictures == 1) {
      return ReplyForm::kPng;
    }
    if (type == "application/json" || type == "application/*" || is_any) {
      return is_prompt_form ? ReplyForm::kNestedArrays : ReplyForm::kBase64Pngs;
    }
  }
  return Status::failed_precondition(
      "pictures come as application/json;png, application/json;jpeg, application/json, text/event-stream or, a single one, image/png "
      "(pictures asked for, Accept):",
      num_pictures, shown_json(std::string(accept)));
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

std::string encode_picture(const ImageRequest& request, const Image& image, size_t index) {
  return png_with_settings(image, request.written_settings(), index);
}

void add_image(const ImageRequest& request, const Image& image, size_t index, std::string& text) {
  const bool is_openais = request.form == ReplyForm::kOpenAi;
  if (is_withheld(image)) {
    text += is_openais ? R"({"b64_json":null})" : "null";
  } else if (request.form == ReplyForm::kNestedArrays) {
    add_nested_rows(image, text);
  } else {
    text += is_openais ? R"({"b64_json":")" : "\"";
    text += encode_base64(request.form == ReplyForm::kBase64Jpegs ? encode_jpeg(image) : encode_picture(request, image, index));
    text += is_openais ? R"("})" : "\"";
  }
}

void add_images(const ImageRequest& request, const std::vector<Image>& images, std::string& text) {
  text += "[";
  for (size_t i = 0; i < images.size(); ++i) {
    if (request.form == ReplyForm::kA1111 && is_withheld(images[i])) {
      continue;  // Clients decode whatever stands there.
    }
    text += text.ends_with('[') ? "" : ",";
    add_image(request, images[i], i, text);
  }
  text += "]";
}

std::string webui_reply(const ImageRequest& request, const std::vector<Image>& images) {
  std::string text = R"({"images":)";
  add_images(request, request.sends_images ? images : std::vector<Image>(), text);
  nlohmann::json info = nlohmann::json::parse(request.info_json);
  info["finish_reasons"] = finish_reasons(images);
  if (!request.warnings.empty()) {
    info["warnings"] = request.warnings;
  }
  return text + fmt::format(R"(,"parameters":{},"info":{}}})", request.parameters_json, json_text(json_text(info)));
}

void read_stream(RequestFields& fields, OpenAiFields& asked) {
  constexpr int kMostPartialImages = 3;
  asked.is_streamed = fields.boolean("stream").value_or(false);
  asked.num_partial_images = static_cast<int>(fields.integer("partial_images", 0, kMostPartialImages).value_or(0));
  if (asked.num_partial_images > 0 && !asked.is_streamed) {
    fields.fail(Status::invalid_argument("partial_images come in streams; give stream: true, or leave out partial_images, got:",
                                         asked.num_partial_images));
  }
  PictureSpec& settings = asked.wanted.settings;
  settings.preview_every = preview_distance(settings.num_steps, asked.num_partial_images);
}

// The form of the reply is what Accept names, which may not fit what is asked for.
Result<ImageRequest> invocation_of(const WantedPictures& wanted, const nlohmann::json& prompt, std::string_view accept, bool is_prompt_form,
                                   const RequestLimits& limits) {
  ImageRequest request;
  request.prompt_json = json_text(prompt);
  DARKROOM_RETURN_IF_ERROR(fill_request(wanted, limits, request));
  DARKROOM_ASSIGN_OR_RETURN(request.form, choose_form(accept, is_prompt_form, request.pictures.size()));
  if (request.form != ReplyForm::kEvents && wanted.settings.preview_every > 0) {
    return Status::failed_precondition("previews come in streams; ask for Accept: text/event-stream, or leave out preview_every, got:",
                                       wanted.settings.preview_every);
  }
  if (request.form == ReplyForm::kNestedArrays && kNestedBytes * request.num_pixels > limits.max_nested_bytes) {
    return Status::failed_precondition(
        "as nested arrays the pictures are larger than replies may be; ask for Accept: application/json;png (bytes, bound):",
        kNestedBytes * request.num_pixels, limits.max_nested_bytes);
  }
  return request;
}

}  // namespace

int preview_distance(int num_steps, int num_partial_images) {
  return num_partial_images == 0 ? 0 : (num_steps + num_partial_images) / (num_partial_images + 1);
}

OpenAiFields read_openai_fields(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  OpenAiFields asked{.wanted = {.settings = default_picture(model, limits)}};
  PictureSpec& settings = asked.wanted.settings;
  fields.need("prompt");
  asked.wanted.prompts = {fields.text("prompt", limits.max_text_bytes).value_or("")};
  asked.wanted.negatives = {fields.text("negative_prompt", limits.max_text_bytes).value_or("")};
  asked.wanted.images_per_prompt = fields.integer("n", 1, limits.max_images).value_or(1);
  read_size(fields, model, limits, settings);
  settings.num_steps = static_cast<int>(fields.integer("steps", 1, limits.max_steps).value_or(settings.num_steps));
  settings.guidance = fields.number("guidance_scale", 0, limits.max_guidance).value_or(settings.guidance);
  read_sampler(fields, "sampler", model, settings.sampler);
  settings.seed = fields.seed("seed").value_or(draw_seed());
  read_stream(fields, asked);
  read_openai_defaults(fields);
  read_model(fields, model);
  return asked;
}

Result<ImageRequest> read_invocation(std::string_view body, std::string_view accept, const ModelFacts& model, const RequestLimits& limits) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_json_object(body));
  RequestFields fields(object, "");
  const InvocationForm form = form_of(object);
  WantedPictures wanted = read_form(form, fields, model, limits);
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  if (wanted.prompts.empty()) {
    return Status::invalid_argument("the request says not what to paint: it needs the field prompt or inputs");
  }
  DARKROOM_ASSIGN_OR_RETURN(ImageRequest request,
                            invocation_of(wanted, prompt_of(form, object), accept, form == InvocationForm::kPrompt, limits));
  request.inputs = std::move(wanted.inputs);
  return request;
}

Result<ImageRequest> read_text_invocation(std::string_view body, std::string_view accept, const ModelFacts& model,
                                          const RequestLimits& limits) {
  const std::string prompt(body);
  if (prompt.empty() || prompt.size() > limits.max_text_bytes || replace_invalid_utf8(prompt).second) {
    return Status::invalid_argument(
        fmt::format("a body of application/x-text is the prompt, UTF-8 of 1 to {} bytes, got bytes:", limits.max_text_bytes),
        prompt.size());
  }
  WantedPictures wanted{.prompts = {prompt}, .settings = default_picture(model, limits)};
  wanted.settings.seed = draw_seed();
  DARKROOM_ASSIGN_OR_RETURN(ImageRequest request, invocation_of(wanted, prompt, accept, /*is_prompt_form=*/true, limits));
  request.is_single = true;
  return request;
}

Result<ImageRequest> read_openai_generation(std::string_view body, const ModelFacts& model, const RequestLimits& limits) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_json_object(body));
  RequestFields fields(object, "");
  const OpenAiFields asked = read_openai_fields(fields, model, limits);
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  ImageRequest request{.pictures = {}, .form = asked.is_streamed ? ReplyForm::kOpenAiEvents : ReplyForm::kOpenAi};
  request.num_partial_images = asked.num_partial_images;
  DARKROOM_RETURN_IF_ERROR(fill_request(asked.wanted, limits, request));
  return request;
}

// Of a job: its prompts are in each picture of the order, in the fields that come back, and in replies, its warnings in the last two.
namespace {

int64_t bytes_of(std::span<const std::string> texts) {
  int64_t num_bytes = 0;
  for (const std::string& text : texts) {
    num_bytes += static_cast<int64_t>(text.size());
  }
  return num_bytes;
}

}  // namespace

int64_t ImageRequest::text_bytes_kept() const {
  constexpr int64_t kCopies = 6;
  constexpr int64_t kFieldBytes = 4096;
  const size_t of_one = pictures.empty() ? 0 : pictures.front().prompt.size() + pictures.front().negative.size();
  return kFieldBytes + (kCopies + static_cast<int64_t>(pictures.size())) * static_cast<int64_t>(of_one) + kCopies * bytes_of(warnings) +
         bytes_of(written_settings());
}

int64_t ImageRequest::input_bytes() const {
  const bool has_input = !pictures.empty() && pictures.front().init_image != nullptr;
  return has_input ? kImageBytes * pictures.front().width * pictures.front().height : 0;
}

int64_t ImageRequest::bytes_held() const {
  constexpr int64_t kBase64Bytes = 4;  // Of as many bytes of PNG as of the picture.
  switch (form) {
    case ReplyForm::kPng:
      return num_pixels * (kImageBytes + kImageBytes);
    case ReplyForm::kNestedArrays:
      return num_pixels * (kImageBytes + kNestedBytes);
    case ReplyForm::kKept:
      return num_pixels * kImageBytes + text_bytes_kept();
    case ReplyForm::kBase64Pngs:
    case ReplyForm::kBase64Jpegs:
    case ReplyForm::kOpenAi:
    case ReplyForm::kA1111:
    case ReplyForm::kEvents:
    case ReplyForm::kOpenAiEvents:
      break;
  }
  const auto of_texts = static_cast<int64_t>(parameters_json.size() + info_json.size());
  return num_pixels * (kImageBytes + kBase64Bytes + kBase64Bytes) + input_bytes() + of_texts;
}

HttpHeaders reply_headers(const ImageRequest& request) {
  constexpr size_t kMostWarningBytes = 1000;  // What clients take of a header has its bounds.
  const std::string seed = fmt::format("{}", request.seed);
  // SageMaker hands on only the second of the two.
  HttpHeaders headers = {{"X-Darkroom-Seed", seed}, {"X-Amzn-SageMaker-Custom-Attributes", fmt::format("seed={}", seed)}};
  if (!request.warnings.empty()) {
    std::string sentence = request.warnings.front();
    while (json_text(sentence).size() > kMostWarningBytes) {
      sentence.resize(sentence.size() * 3 / 4);
    }
    headers.emplace_back("X-Darkroom-Warning", json_text(sentence));
  }
  return headers;
}

nlohmann::json invocation_schema(const ModelFacts& model, const RequestLimits& limits) {
  const auto described = [&](InvocationForm form) {
    return described_fields([&](RequestFields& fields) { read_form(form, fields, model, limits); });
  };
  nlohmann::json prompt_form = described(InvocationForm::kPrompt);
  nlohmann::json inputs_form = described(InvocationForm::kInputs);
  prompt_form["required"] = {"prompt"};
  inputs_form["required"] = {"inputs"};
  return {{"oneOf", {prompt_form, inputs_form, described(InvocationForm::kPicture)}}};
}

nlohmann::json text_invocation_schema(const RequestLimits& limits) {
  return {{"type", "string"}, {"minLength", 1}, {"maxLength", limits.max_text_bytes}};
}

nlohmann::json openai_generation_schema(const ModelFacts& model, const RequestLimits& limits) {
  return described_fields([&](RequestFields& fields) { read_openai_fields(fields, model, limits); });
}

HttpReply image_reply(const ImageRequest& request, const std::vector<Image>& images, int64_t created) {
  HttpReply reply{.headers = reply_headers(request)};
  if (request.form == ReplyForm::kPng && is_withheld(images.front())) {
    return withheld_reply();
  }
  if (request.form == ReplyForm::kPng) {
    reply.type = "image/png";
    reply.body = encode_picture(request, images.front(), 0);
    return reply;
  }
  if (request.form == ReplyForm::kA1111) {
    reply.body = webui_reply(request, images);
    return reply;
  }
  if (request.is_single) {
    reply.body = R"({"generated_image":)";
    add_image(request, images.front(), 0, reply.body);
  } else {
    reply.body = request.form == ReplyForm::kOpenAi ? fmt::format(R"({{"created":{},"data":)", created) : R"({"generated_images":)";
    add_images(request, images, reply.body);
  }
  reply.body += request.form == ReplyForm::kOpenAi ? std::string() : fmt::format(R"(,"prompt":{})", request.prompt_json);
  reply.body += fmt::format(R"(,"seed":{},"finish_reasons":{})", request.seed, json_text(finish_reasons(images)));
  reply.body += request.warnings.empty() ? std::string("}") : fmt::format(R"(,"warnings":{}}})", json_text(request.warnings));
  return reply;
}

}  // namespace darkroom
