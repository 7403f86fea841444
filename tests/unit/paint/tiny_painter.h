#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/nn/init.h"
#include "darkroom/nn/presets.h"
#include "darkroom/paint/painter.h"
#include "unit/text/tiny_tokenizer.h"

namespace darkroom {

/// The tiny model with random weights and the full vocabulary.
struct TinyModel {
  TinyModel() : preset(find_preset("tiny").value()), unet(preset.unet), vae(preset.vae), text_encoder(preset.text_encoder) {
    at::set_num_threads(1);
    initialize_parameters(unet, 1);
    initialize_parameters(vae, 1);
    initialize_parameters(text_encoder, 1);
    tokenizer = ClipTokenizer::load(local_files(), source_path("models/tiny/tokenizer"), TokenizerDialect::kHuggingFace).value();
  }
  Result<std::unique_ptr<Painter>> painter() {
    return Painter::create(unet, vae, text_encoder, tokenizer, SchedulerConfig::from_json(preset.scheduler).value());
  }

  ModelPreset preset;
  UNet2DConditionModel unet;
  AutoencoderKL vae;
  ClipTextModel text_encoder;
  std::shared_ptr<const ClipTokenizer> tokenizer;
};

inline TinyModel& tiny_model() {
  static TinyModel model;
  return model;
}

inline Painter& painter() {
  static const std::unique_ptr<Painter> tiny = tiny_model().painter().value();
  return *tiny;
}

inline PaintRequest request_of(std::vector<std::string> prompts, std::vector<uint64_t> seeds, int num_steps = 3) {
  PaintRequest request;
  request.prompts = std::move(prompts);
  request.seeds = std::move(seeds);
  request.sampler = {.name = "ddim", .num_steps = num_steps};
  request.guidance = 3.0;
  return request;
}

}  // namespace darkroom
