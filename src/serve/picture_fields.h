#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/serve/image_requests.h"
#include "request_fields.h"

namespace darkroom {

/// Bytes of a model's name; a longer one names none.
inline constexpr size_t kMaxModelName = 1000;

/// What every protocol asks for, by whatever names.
struct WantedPictures {
  std::vector<std::string> prompts = {};
  std::vector<std::string> negatives = {};  ///< One for all, or one per prompt.
  PictureSpec settings = {};
  int64_t images_per_prompt = 1;
  std::vector<InputPicture> inputs = {};  ///< ImageRequest's.
};

/// The object that a body holds. Errors: kInvalidArgument.
Result<nlohmann::json> read_json_object(std::string_view body);

/// What a request gets that names nothing, within the limits.
PictureSpec default_picture(const ModelFacts& model, const RequestLimits& limits);
/// Short enough for every client to keep it exactly.
uint64_t draw_seed();

// Each reads a field by the name that its protocol gives it; what is not there stays as it is.

void read_side(RequestFields& fields, const char* name, const ModelFacts& model, const RequestLimits& limits, int& side);
void read_sampler(RequestFields& fields, const char* name, const ModelFacts& model, std::string& sampler);
/// The field `prompt_syntax`: plain, or weighted.
void read_prompt_syntax(RequestFields& fields, PictureSpec& settings);
/// The picture to start from, in a field with its base64; empty: none is given.
std::vector<InputPicture> read_picture(RequestFields& fields, const char* name);
/// The same, and how far from it, in `strength`.
std::vector<InputPicture> read_start(RequestFields& fields, const char* name, PictureSpec& settings);
/// Refuses the strength that the field `name` gave, where it leaves none of the steps.
void check_strength(RequestFields& fields, const char* name, const PictureSpec& settings);
/// A text, or a list of texts.
std::vector<std::string> read_texts(RequestFields& fields, const char* name, const RequestLimits& limits);

/// The field `model`, whatever it names.
std::optional<std::string> read_model_name(RequestFields& fields);
/// The same. Fails with kNotFound where it names another one.
void read_model(RequestFields& fields, const ModelFacts& model);

/// What a body that holds a JSON object names in its field `model`; empty: nothing, or it is no such body, which its reader will say.
std::string named_model(std::string_view body);

/// Makes the pictures that are wanted of one request. Errors: kInvalidArgument (too many, negative prompts that fit no prompts).
Status fill_request(const WantedPictures& wanted, const RequestLimits& limits, ImageRequest& request);

/// Notes the pictures' settings, for their PNGs. REQUIRES: the request is filled.
void note_settings(ImageRequest& request, const ModelFacts& model);

/// The headers of every reply with pictures: the seed of the first one, and the first warning.
HttpHeaders reply_headers(const ImageRequest& request);

// JSON Schemas of what the readers of requests take (image_requests.h, edit_requests.h).

nlohmann::json invocation_schema(const ModelFacts& model, const RequestLimits& limits);
nlohmann::json text_invocation_schema(const RequestLimits& limits);
nlohmann::json openai_generation_schema(const ModelFacts& model, const RequestLimits& limits);
nlohmann::json openai_edit_form_schema(const ModelFacts& model, const RequestLimits& limits);
nlohmann::json openai_edit_json_schema(const ModelFacts& model, const RequestLimits& limits);
nlohmann::json imagine_schema(const ModelFacts& model, const RequestLimits& limits);

}  // namespace darkroom
