#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

/// The keyword of the text chunk in which stable-diffusion-webui keeps a picture's settings.
inline constexpr const char* kSettingsKeyword = "parameters";

/// A sampler as stable-diffusion-webui 1.10 writes it.
struct WebuiSampler {
  const char* ours;                    ///< "dpmpp_2m_karras".
  const char* name;                    ///< "DPM++ 2M Karras": also from before schedules had a field of their own.
  const char* base;                    ///< "DPM++ 2M": beside the schedule.
  const char* schedule;                ///< "Karras".
  std::array<const char*, 2> aliases;  ///< Null where there are no more.
};
std::span<const WebuiSampler> webui_samplers();

/// A picture's settings as stable-diffusion-webui writes them: the prompt, "Negative prompt: ...", and a line of "Name: value" with commas
/// between. A NUL becomes U+FFFD, which a text chunk can hold.
/// `strength` is that of a picture that starts from another.
std::string settings_text(const PictureSpec& spec, const ModelFacts& model, std::optional<double> strength = std::nullopt);

/// A picture of several as a PNG. `texts`: the settings of each, which its PNG gets; empty: it gets none.
std::string png_with_settings(const Image& image, std::span<const std::string> texts, size_t index);

/// What such a text says, by the rule of modules/infotext_utils.py (parse_generation_parameters): {"Prompt", "Negative prompt", "Steps",
/// "Size-1", "Size-2", ...}, each a text. Takes linear time.
nlohmann::json parse_settings(std::string_view text);

/// The reply of POST /sdapi/v1/png-info to a file: {"info", "items", "parameters"}. Of a PNG without the chunk `parameters` but with those
/// of `darkroom sample`, info and parameters are made of these. Errors: kInvalidArgument: no PNG, or a damaged one.
Result<nlohmann::json> png_info(std::span<const std::byte> png);

}  // namespace darkroom
