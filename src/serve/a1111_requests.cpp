#include "darkroom/serve/a1111_requests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/version.h"
#include "darkroom/serve/png_settings.h"
#include "picture_fields.h"

namespace darkroom {
namespace {

constexpr double kDefaultGuidance = 7.0;
constexpr int kPreviewEvery = 10;  // Steps, as webui has it unless it is told otherwise.
constexpr double kDefaultDenoising = 0.75;
constexpr size_t kLongestName = 100;
constexpr const char* kModelOption = "sd_model_checkpoint";
constexpr const char* kText = "string";
constexpr const char* kInteger = "integer";
constexpr const char* kNumber = "number";
constexpr const char* kBoolean = "boolean";

bool takes_sampler(const ModelFacts& model, std::string_view sampler) {
  return std::find(model.samplers.begin(), model.samplers.end(), sampler) != model.samplers.end();
}

// Names of webui's samplers, in any case, their aliases, and ours.
const WebuiSampler* webui_sampler_named(const std::string& name) {
  const std::string wanted = ascii_lower(name);
  for (const WebuiSampler& sampler : webui_samplers()) {
    const auto is_alias = [&](const char* alias) { return alias != nullptr && wanted == alias; };
    if (wanted == ascii_lower(std::string(sampler.name)) || wanted == sampler.ours || std::ranges::any_of(sampler.aliases, is_alias)) {
      return &sampler;
    }
  }
  return nullptr;
}

std::vector<std::string> sampler_names_of(const ModelFacts& model) {
  std::vector<std::string> names;
  for (const WebuiSampler& sampler : webui_samplers()) {
    if (takes_sampler(model, sampler.ours)) {
      names.emplace_back(sampler.name);
    }
  }
  return names;
}

/// Our sampler for one of webui's and its schedule; nothing where that pair is not built. webui's DPM++ 2M has Karras' schedule unless
/// another is asked for; three of its samplers read no schedule.
std::optional<std::string> pair_of(const WebuiSampler& sampler, const std::string& asked, const std::string& schedule) {
  const std::string base = sampler.base;
  const bool is_automatic = schedule.empty() || schedule == "automatic";
  const bool is_ours = asked == sampler.ours;
  if (base == "DPM++ 2M") {
    if (schedule == "karras" || (is_automatic && !is_ours)) {
      return "dpmpp_2m_karras";
    }
    if (schedule == "uniform") {
      return "dpmpp_2m";
    }
  }
  const bool reads_none = base == "DDIM" || base == "PLMS" || base == "UniPC";
  const bool is_own = is_automatic || reads_none || (schedule == "uniform" && base.starts_with("Euler"));
  return is_own ? std::optional<std::string>(sampler.ours) : std::nullopt;
}

void read_webui_sampler(RequestFields& fields, const ModelFacts& model, std::string& chosen) {
  const std::string index = fields.text("sampler_index", kLongestName).value_or("");
  const std::string name = fields.text("sampler_name", kLongestName).value_or("");
  const std::string schedule = ascii_lower(fields.text("scheduler", kLongestName).value_or(""));
  const std::string asked = name.empty() ? index : name;
  for (const char* field : {"sampler_index", "sampler_name"}) {
    fields.describe(field, {{"examples", sampler_names_of(model)}});  // Also in other cases, and by other names.
  }
  fields.describe("scheduler", {{"examples", {"automatic", "uniform", "karras"}}});
  if (asked.empty() && (schedule.empty() || schedule == "automatic")) {
    return;
  }
  const WebuiSampler* sampler = webui_sampler_named(asked);
  if (sampler == nullptr || !takes_sampler(model, sampler->ours)) {
    fields.fail(Status::invalid_argument(fmt::format("{} must be one of {}, got:", name.empty() ? "sampler_index" : "sampler_name",
                                                     fmt::join(sampler_names_of(model), ", ")),
                                         shown_json(asked)));
    return;
  }
  const std::optional<std::string> pair = pair_of(*sampler, asked, schedule);
  if (!pair.has_value() || !takes_sampler(model, *pair)) {
    fields.fail(Status::invalid_argument("scheduler must be automatic, or karras or uniform of a sampler that has it (sampler, got):",
                                         shown_json(asked), shown_json(schedule)));
    return;
  }
  chosen = *pair;
}

// -1 asks for a drawn one.
uint64_t read_seed(RequestFields& fields) {
  const nlohmann::json* value = fields.any("seed");
  if (value != nullptr && value->is_number_integer() && !value->is_number_unsigned() && value->get<int64_t>() == -1) {
    return draw_seed();
  }
  const uint64_t seed = fields.seed("seed").value_or(draw_seed());
  fields.describe("seed", {{"minimum", -1}, {"description", "-1: a drawn one."}});
  return seed;
}

// Texts that webui would read as its extra networks, which are none here.
void refuse_networks(RequestFields& fields, const char* name, const std::string& text) {
  for (const char* mark : {"<lora:", "<lyco:", "<hypernet:"}) {
    if (text.find(mark) != std::string::npos) {
      fields.fail(Status::invalid_argument(fmt::format("{} asks for a network that this server does not have:", fields.shown(name)), mark));
    }
  }
}

std::string read_prompt(RequestFields& fields, const char* name, const RequestLimits& limits) {
  std::string text = fields.text(name, limits.max_text_bytes).value_or("");
  refuse_networks(fields, name, text);
  return text;
}

/// A field that is not read, with the type that webui's clients send.
struct UnreadField {
  const char* name;
  const char* type;
};

void skip_fields(RequestFields& fields, std::initializer_list<UnreadField> unread) {
  for (const UnreadField& field : unread) {
    fields.any(field.name, {{"type", field.type}, {"description", "Not read."}});
  }
}

// Fields of both routes that would change the picture at other values than these.
void read_fixed_fields(RequestFields& fields) {
  const nlohmann::json none = nlohmann::json::array();
  const nlohmann::json nothing = nlohmann::json::object();
  fields.only("styles", {none});
  fields.only("subseed_strength", {0});
  fields.only("seed_resize_from_h", {-1, 0});
  fields.only("seed_resize_from_w", {-1, 0});
  fields.only("restore_faces", {false});
  fields.only("tiling", {false});
  fields.only("s_min_uncond", {0});
  fields.only("s_churn", {0});
  fields.only("s_noise", {1});
  fields.only("refiner_checkpoint", {"", "None"});
  fields.only("firstpass_image", {});
  fields.only("script_name", {"", "None"});
  fields.only("alwayson_scripts", {nothing});
  fields.only("infotext", {""});
  fields.only("save_images", {false});
  // These change nothing as long as the others are as they are.
  skip_fields(fields, {{"subseed", kInteger},
                       {"s_tmin", kNumber},
                       {"s_tmax", kNumber},
                       {"refiner_switch_at", kNumber},
                       {"script_args", "array"},
                       {"disable_extra_networks", kBoolean},
                       {"comments", "object"},
                       {"force_task_id", kText},
                       {"do_not_save_samples", kBoolean},
                       {"do_not_save_grid", kBoolean},
                       {"override_settings_restore_afterwards", kBoolean}});
}

void read_override(RequestFields& fields, const ModelFacts& model) {
  const nlohmann::json* settings = fields.any("override_settings", a1111_options_schema(model, true));
  if (settings != nullptr && !settings->is_object()) {
    fields.fail(Status::invalid_argument("override_settings must be an object, got:", shown_json(*settings)));
  } else if (settings != nullptr) {
    fields.fail(check_a1111_options(*settings, model, true, "override_settings."));
  }
}

WantedPictures read_common_fields(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits) {
  WantedPictures wanted{.prompts = {read_prompt(fields, "prompt", limits)},
                        .negatives = {read_prompt(fields, "negative_prompt", limits)},
                        .settings = default_picture(model, limits)};
  PictureSpec& settings = wanted.settings;
  settings.has_weight_syntax = true;
  read_side(fields, "width", model, limits, settings.width);
  read_side(fields, "height", model, limits, settings.height);
  settings.num_steps = static_cast<int>(fields.integer("steps", 1, limits.max_steps).value_or(settings.num_steps));
  settings.guidance = fields.number("cfg_scale", 0, limits.max_guidance).value_or(kDefaultGuidance);
  settings.preview_every = kPreviewEvery;
  read_webui_sampler(fields, model, settings.sampler);
  const auto eta = fields.number("eta", 0, 1);
  const std::string& painted_by = settings.sampler.empty() ? model.default_sampler : settings.sampler;
  settings.eta = painted_by == "ddim" ? eta.value_or(0.0) : 0.0;
  if (painted_by == "euler_a" && eta.value_or(1.0) != 1.0) {
    fields.fail(Status::invalid_argument("eta of the sampler Euler a is 1 here, got:", *eta));
  }
  settings.seed = read_seed(fields);
  const int64_t num_rounds = fields.integer("n_iter", 1, limits.max_images).value_or(1);
  wanted.images_per_prompt = num_rounds * fields.integer("batch_size", 1, limits.max_images).value_or(1);
  read_fixed_fields(fields);
  read_override(fields, model);
  return wanted;
}

void read_send_images(RequestFields& fields, ImageRequest& request) {
  const nlohmann::json* value = fields.any("send_images", {{"type", kBoolean}});
  if (value != nullptr && !value->is_boolean()) {
    fields.fail(Status::invalid_argument("send_images must be true or false, got:", shown_json(*value)));
  } else if (value != nullptr) {
    request.sends_images = value->get<bool>();
  }
}

// What the reply repeats: the fields without pictures.
std::string parameters_json(nlohmann::json object) {
  for (const char* name : {"init_images", "mask"}) {
    if (object.contains(name)) {
      object[name] = nullptr;
    }
  }
  return json_text(object);
}

// The one initial picture. Its text is taken out of the body, which may be long.
void take_init_image(RequestFields& fields, nlohmann::json& object, ImageRequest& request) {
  const nlohmann::json* value =
      fields.any("init_images", {{"type", "array"}, {"items", {{"type", kText}}}, {"minItems", 1}, {"maxItems", 1}});
  if (value == nullptr || !value->is_array() || value->size() != 1 || !value->front().is_string()) {
    fields.fail(Status::invalid_argument("init_images must be a list of one picture in base64, got:",
                                         value == nullptr    ? "null"
                                         : value->is_array() ? fmt::format("a list of {}", value->size())
                                                             : value->type_name()));
    return;
  }
  auto picture = read_picture_text("init_images[0]", std::move(object["init_images"][0].get_ref<std::string&>()));
  if (!picture.is_ok()) {
    fields.fail(picture.status());
    return;
  }
  request.inputs = {*std::move(picture)};
}

void read_hires_fields(RequestFields& fields) {
  fields.only("enable_hr", {false});
  fields.number("denoising_strength", 0, 1);  // Of the second pass, which there is none of.
  skip_fields(fields, {{"hr_scale", kNumber},
                       {"hr_upscaler", kText},
                       {"hr_second_pass_steps", kInteger},
                       {"hr_resize_x", kInteger},
                       {"hr_resize_y", kInteger},
                       {"hr_checkpoint_name", kText},
                       {"hr_sampler_name", kText},
                       {"hr_scheduler", kText},
                       {"hr_prompt", kText},
                       {"hr_negative_prompt", kText},
                       {"firstphase_width", kInteger},
                       {"firstphase_height", kInteger}});
}

void read_init_fields(RequestFields& fields, PictureSpec& settings) {
  settings.strength = fields.number("denoising_strength", 0, 1).value_or(kDefaultDenoising);
  check_strength(fields, "denoising_strength", settings);
  fields.only("resize_mode", {0});
  fields.only("mask", {});
  fields.only("latent_mask", {});
  fields.only("initial_noise_multiplier", {1});
  skip_fields(fields, {{"image_cfg_scale", kNumber},
                       {"mask_blur", kInteger},
                       {"mask_blur_x", kInteger},
                       {"mask_blur_y", kInteger},
                       {"mask_round", kBoolean},
                       {"inpainting_fill", kInteger},
                       {"inpaint_full_res", kBoolean},
                       {"inpaint_full_res_padding", kInteger},
                       {"inpainting_mask_invert", kInteger},
                       {"include_init_images", kBoolean}});
}

std::string info_json(const std::vector<PictureSpec>& pictures, const ImageRequest& request, const ModelFacts& model) {
  const PictureSpec& first = pictures.front();
  const WebuiSampler* sampler = webui_sampler_named(first.sampler.empty() ? model.default_sampler : first.sampler);
  nlohmann::json seeds = nlohmann::json::array();
  for (const PictureSpec& picture : pictures) {
    seeds.push_back(picture.seed);
  }
  return json_text({{"prompt", first.prompt},
                    {"all_prompts", std::vector(pictures.size(), first.prompt)},
                    {"negative_prompt", first.negative},
                    {"all_negative_prompts", std::vector(pictures.size(), first.negative)},
                    {"seed", first.seed},
                    {"all_seeds", seeds},
                    {"subseed", -1},
                    {"all_subseeds", std::vector(pictures.size(), -1)},
                    {"subseed_strength", 0},
                    {"width", first.width},
                    {"height", first.height},
                    {"sampler_name", sampler == nullptr ? model.default_sampler : sampler->base},
                    {"cfg_scale", first.guidance},
                    {"steps", first.num_steps},
                    {"batch_size", pictures.size()},
                    {"restore_faces", false},
                    {"sd_model_name", model.name},
                    {"sd_model_hash", nullptr},
                    {"denoising_strength", request.inputs.empty() ? nlohmann::json() : nlohmann::json(first.strength)},
                    {"extra_generation_params", nlohmann::json::object()},
                    {"index_of_first_image", 0},
                    {"infotexts", request.settings_texts},
                    {"styles", nlohmann::json::array()},
                    {"clip_skip", 1},
                    {"is_using_inpainting_conditioning", false},
                    {"version", fmt::format("darkroom {}", kVersion)}});
}

WantedPictures read_txt2img_fields(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits, ImageRequest& request) {
  WantedPictures wanted = read_common_fields(fields, model, limits);
  read_hires_fields(fields);
  read_send_images(fields, request);
  return wanted;
}

WantedPictures read_img2img_fields(RequestFields& fields, nlohmann::json& object, const ModelFacts& model, const RequestLimits& limits,
                                   ImageRequest& request) {
  WantedPictures wanted = read_common_fields(fields, model, limits);
  read_init_fields(fields, wanted.settings);
  take_init_image(fields, object, request);
  read_send_images(fields, request);
  return wanted;
}

std::string read_picture_of_png_info(RequestFields& fields) { return fields.text("image", kMaxPictureBodyBytes).value_or(""); }

Result<ImageRequest> finish_request(RequestFields& fields, const WantedPictures& wanted, const ModelFacts& model,
                                    const RequestLimits& limits, ImageRequest request) {
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  request.form = ReplyForm::kA1111;
  DARKROOM_RETURN_IF_ERROR(fill_request(wanted, limits, request));
  note_settings(request, model);
  request.info_json = info_json(request.pictures, request, model);
  return request;
}

nlohmann::json shown_options(const ModelFacts& model, bool has_png_settings) {
  return {{kModelOption, model.name}, {"sd_checkpoint_hash", nullptr},
          {"sd_vae", "Automatic"},    {"CLIP_stop_at_last_layers", 1},
          {"samples_format", "png"},  {"enable_pnginfo", has_png_settings},
          {"samples_save", false},    {"grid_save", false},
          {"return_grid", false},     {"eta_ddim", 0.0},
          {"eta_ancestral", 1.0},     {"img2img_fix_steps", false},
          {"emphasis", "Original"},   {"comma_padding_backtrack", 20}};
}

}  // namespace

Result<ImageRequest> read_txt2img(std::string_view body, const ModelFacts& model, const RequestLimits& limits) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_json_object(body));
  RequestFields fields(object, "");
  ImageRequest request;
  const WantedPictures wanted = read_txt2img_fields(fields, model, limits, request);
  request.parameters_json = json_text(object);
  return finish_request(fields, wanted, model, limits, std::move(request));
}

Result<ImageRequest> read_img2img(std::string_view body, const ModelFacts& model, const RequestLimits& limits) {
  DARKROOM_ASSIGN_OR_RETURN(nlohmann::json object, read_json_object(body));
  RequestFields fields(object, "");
  ImageRequest request;
  const WantedPictures wanted = read_img2img_fields(fields, object, model, limits, request);
  request.parameters_json = parameters_json(object);
  return finish_request(fields, wanted, model, limits, std::move(request));
}

nlohmann::json txt2img_schema(const ModelFacts& model, const RequestLimits& limits) {
  ImageRequest unused;
  return described_fields([&](RequestFields& fields) { read_txt2img_fields(fields, model, limits, unused); });
}

nlohmann::json img2img_schema(const ModelFacts& model, const RequestLimits& limits) {
  ImageRequest unused;
  nlohmann::json nothing = nlohmann::json::object();
  nlohmann::json schema = described_fields([&](RequestFields& fields) { read_img2img_fields(fields, nothing, model, limits, unused); });
  schema["required"] = {"init_images"};  // What says so when it is missing has words of its own.
  return schema;
}

nlohmann::json a1111_samplers(const ModelFacts& model) {
  nlohmann::json samplers = nlohmann::json::array();
  for (const WebuiSampler& sampler : webui_samplers()) {
    if (takes_sampler(model, sampler.ours)) {
      nlohmann::json aliases = {sampler.ours};
      for (const char* alias : sampler.aliases) {
        if (alias != nullptr) {
          aliases.push_back(alias);
        }
      }
      samplers.push_back({{"name", sampler.name}, {"aliases", aliases}, {"options", nlohmann::json::object()}});
    }
  }
  return samplers;
}

nlohmann::json a1111_schedulers() {
  const auto schedule = [](const char* name, const char* label, double rho) {
    return nlohmann::json{{"name", name}, {"label", label}, {"aliases", nullptr}, {"default_rho", rho}, {"need_inner_model", false}};
  };
  return {schedule("automatic", "Automatic", -1.0), schedule("uniform", "Uniform", -1.0), schedule("karras", "Karras", 7.0)};
}

nlohmann::json a1111_models(const std::vector<std::string>& names) {
  nlohmann::json models = nlohmann::json::array();
  for (const std::string& name : names) {
    models.push_back(
        {{"title", name}, {"model_name", name}, {"hash", nullptr}, {"sha256", nullptr}, {"filename", name}, {"config", nullptr}});
  }
  return models;
}

std::string a1111_model(std::string_view body) {
  if (body.find(kModelOption) == std::string_view::npos) {
    return {};
  }
  const auto object = read_json_object(body);
  const nlohmann::json::json_pointer place("/override_settings/sd_model_checkpoint");
  const bool is_text = object.is_ok() && object->contains(place) && object->at(place).is_string();
  const std::string name = is_text ? object->at(place).get<std::string>() : std::string();
  return name.size() <= kMaxModelName ? name : std::string();
}

nlohmann::json a1111_options(const ModelFacts& model, bool has_png_settings) { return shown_options(model, has_png_settings); }

nlohmann::json a1111_options_schema(const ModelFacts& model, bool has_png_settings) {
  nlohmann::json schema = {{"type", "object"}, {"additionalProperties", false}};
  const nlohmann::json options = shown_options(model, has_png_settings);
  for (const auto& [name, value] : options.items()) {
    schema["properties"][name] = name == kModelOption ? nlohmann::json{{"type", kText}, {"maxLength", kMaxModelName}}
                                 : value.is_null()    ? nlohmann::json{{"type", "null"}}
                                                      : nlohmann::json{{"enum", {value}}};
  }
  return schema;
}

Status check_a1111_options(const nlohmann::json& asked, const ModelFacts& model, bool has_png_settings, std::string_view where) {
  const nlohmann::json own = shown_options(model, has_png_settings);
  for (const auto& [name, value] : asked.items()) {
    const std::string shown = fmt::format("{}{}", where, name.substr(0, kLongestName));
    if (!own.contains(name)) {
      return Status::invalid_argument("this server has no such option:", shown);
    }
    if (value != own[name] && !value.is_null()) {
      return Status::invalid_argument(fmt::format("{} of this server cannot be changed from {}, asked for:", shown, json_text(own[name])),
                                      shown_json(value));
    }
  }
  return Status::ok();
}

Result<InputPicture> read_png_info(std::string_view body) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_json_object(body));
  RequestFields fields(object, "");
  std::string image = read_picture_of_png_info(fields);
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  return read_picture_text("image", std::move(image));
}

nlohmann::json png_info_schema() {
  nlohmann::json schema = described_fields([](RequestFields& fields) { read_picture_of_png_info(fields); });
  schema["required"] = {"image"};
  return schema;
}

}  // namespace darkroom
