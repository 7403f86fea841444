#pragma once

#include <cstdint>
#include <stop_token>
#include <string_view>

#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"

namespace darkroom {

// Deterministic initialisation: element i of a parameter is draw i of CounterRandom(seed, Purpose::kInit, epoch 0,
// key = "COMPONENT/NAME"), so threads, machines and the order of the parameters change nothing. Distributions are those of
// the published classes: PyTorch's default for convolutions and linear layers (weight and bias uniform in
// +-1/sqrt(fan_in)), ones and zeros for norms; for the text encoder transformers' normal initialisation.
// A stop request ends it between two parameters; the rest stay as they are.

/// COMPONENT is "unet".
void initialize_parameters(UNet2DConditionModel& unet, uint64_t seed, const std::stop_token& stop = {});
/// COMPONENT is "vae".
void initialize_parameters(AutoencoderKL& vae, uint64_t seed, const std::stop_token& stop = {});
/// COMPONENT is "text_encoder".
void initialize_parameters(ClipTextModel& text_encoder, uint64_t seed, const std::stop_token& stop = {});

}  // namespace darkroom
