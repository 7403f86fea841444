#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/image_requests.h"
#include "darkroom/serve/step_engine.h"

// The HTTP interface of AUTOMATIC1111's stable-diffusion-webui, release 1.10 (modules/api), as far as docs/serve.md says.
namespace darkroom {

/// Reads the body of POST /sdapi/v1/txt2img. Known fields that are not built are taken where they change no picture and refused where they
/// would. Errors: kInvalidArgument naming the field.
Result<ImageRequest> read_txt2img(std::string_view body, const ModelFacts& model, const RequestLimits& limits);

/// The same of POST /sdapi/v1/img2img, with one initial picture.
Result<ImageRequest> read_img2img(std::string_view body, const ModelFacts& model, const RequestLimits& limits);

/// JSON Schemas of these bodies, and of POST /sdapi/v1/options and /png-info.
nlohmann::json txt2img_schema(const ModelFacts& model, const RequestLimits& limits);
nlohmann::json img2img_schema(const ModelFacts& model, const RequestLimits& limits);
nlohmann::json a1111_options_schema(const ModelFacts& model, bool has_png_settings);
nlohmann::json png_info_schema();

/// GET /sdapi/v1/samplers, /schedulers, /sd-models.
nlohmann::json a1111_samplers(const ModelFacts& model);
nlohmann::json a1111_schedulers();
nlohmann::json a1111_models(const std::vector<std::string>& names);
/// GET /sdapi/v1/options: those that mean something here, at their values.
nlohmann::json a1111_options(const ModelFacts& model, bool has_png_settings);
/// The model that a body names in override_settings.sd_model_checkpoint; empty: none, or what cannot be read, which its reader will say.
std::string a1111_model(std::string_view body);
/// POST /sdapi/v1/options: each must have the value that it has. Errors: kInvalidArgument naming the first that has another.
Status check_a1111_options(const nlohmann::json& asked, const ModelFacts& model, bool has_png_settings, std::string_view where = "");

/// The picture of POST /sdapi/v1/png-info {"image"}. Errors: kInvalidArgument.
Result<InputPicture> read_png_info(std::string_view body);

}  // namespace darkroom
