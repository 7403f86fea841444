#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"

namespace darkroom {

/// A complete architecture under a name: the configs of the four parts, as published.
struct ModelPreset {
  std::string name;
  UNetConfig unet;
  VaeConfig vae;
  ClipTextConfig text_encoder;
  nlohmann::json scheduler;  ///< scheduler_config.json.
};

/// Names of all presets: tiny, sd1, sd2-base, sd2-768, and quickstart (the small U-Net of the published pre-training quickstart with the
/// other parts of version 2).
std::vector<std::string> preset_names();
/// Errors: kInvalidArgument naming the presets.
Result<ModelPreset> find_preset(const std::string& name);

}  // namespace darkroom
