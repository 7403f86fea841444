#include "picture_notes.h"

#include <fmt/format.h>

#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/version.h"
#include "darkroom/image/decode.h"
#include "darkroom/paint/picture_settings.h"

namespace darkroom {

std::vector<PngText> picture_settings(const PaintRequest& request, const PaintedWith& with, size_t index, const Image& image) {
  std::vector<PngText> text = {{"prompt", request.prompts[index]},
                               {"negative_prompt", request.negative},
                               {"seed", fmt::format("{}", request.seeds[index])},
                               {"sampler", with.sampler},
                               {"steps", fmt::format("{}", request.sampler.num_steps)},
                               {"guidance", fmt::format("{}", request.guidance)},
                               {"guidance_rescale", fmt::format("{}", request.guidance_rescale)},
                               {"eta", fmt::format("{}", request.sampler.eta)},
                               {"size", fmt::format("{}x{}", image.width, image.height)},
                               {"model", with.model},
                               {"weights", with.weights},
                               {"Software", "darkroom " + std::string(kVersion)}};
  if (request.reading != PromptReading()) {
    text.emplace_back("prompt_syntax", std::string(prompt_syntax_name(request.reading.syntax)));
    text.emplace_back("long_prompts", std::string(long_prompts_name(request.reading.long_prompts)));
  }
  if (request.unit_noise_nchw.defined()) {
    text.emplace_back("latents", with.start_latents);
  }
  if (!request.init_images.empty()) {
    text.emplace_back("init_image", with.init_image);
    text.emplace_back("strength", fmt::format("{}", request.strength));
  }
  if (with.place != NetworkPlace()) {
    text.emplace_back("device", with.place.device_class());
    text.emplace_back("precision", std::string(float_type_name(with.place.type)));
  }
  return text;
}

Result<Image> decode_init_image(std::string_view bytes, const std::string& path) {
  RowResult<Image> image = decode_image(std::as_bytes(std::span(bytes)), kAnySize);
  if (!image.is_ok()) {
    return Status::failed_precondition("the picture to start from cannot be read (path, error, detail):", path, image.error().name(),
                                       image.error().detail);
  }
  return std::move(image).value();
}

void warn_of_useless_step(const SamplerSpec& spec, const std::string& name, const SchedulerConfig& scheduler) {
  const auto sampler = make_sampler(spec, scheduler);
  if ((name == "ddim" || name == "pndm") && sampler.is_ok() && (*sampler)->timesteps().back() < 0) {
    log_warning("trailing timesteps of {} steps end at -1, as in diffusers, which spoils the picture; take another number of steps",
                spec.num_steps);
  }
}

void warn_of_not_finite(int64_t num_not_finite, int64_t num_pictures, const NetworkPlace& place) {
  if (num_not_finite > 0) {
    log_warning(
        "{} of {} pictures came out of the networks with values that are no numbers (NaN or infinite), which show black; the weights may "
        "be damaged (`darkroom models check` tells), or {} does not hold what they make (--precision)",
        num_not_finite, num_pictures, float_type_name(place.type));
  }
}

Status warn_of_lost_text(const Painter& painter, const std::set<std::string>& texts, const PromptReading& reading) {
  constexpr int kMostWarnings = 20;
  int num_lost = 0;
  for (const std::string& text : texts) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string lost, painter.lost_text(text, reading));
    if (!lost.empty() && ++num_lost <= kMostWarnings) {
      log_warning("a prompt is longer than the {} tokens that are read; --long-prompts chunks reads all; lost: '{}'; prompt: '{}'",
                  kChunkTokens, lost, text);
    }
  }
  if (num_lost > kMostWarnings) {
    log_warning("{} more prompts are longer than the tokens that are read", num_lost - kMostWarnings);
  }
  return Status::ok();
}

}  // namespace darkroom
