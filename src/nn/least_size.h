#pragma once

#include <string>

#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "darkroom/nn/vision_tower.h"
#include "weight_files.h"

namespace darkroom {

/// What a network of a config has at the least.
struct LeastSize {
  double tensors = 0;
  double parameters = 0;  // As of which networks take memory.

  LeastSize operator+(const LeastSize& other) const { return {tensors + other.tensors, parameters + other.parameters}; }
};

LeastSize least_size(const ClipTextConfig& config);
LeastSize least_size(const ClipVisionConfig& config);
LeastSize least_size(const VaeConfig& config);
LeastSize least_size(const UNetConfig& config);

/// A network is built before its weights are looked at, so that a config of other weights, or of none, must not ask for more than is
/// stored. `source` is the folder or file that the message names. Errors: kFailedPrecondition, those of reading the weights' shapes.
Status check_fits(const LeastSize& least, const WeightFiles& weights, const std::string& source);

}  // namespace darkroom
