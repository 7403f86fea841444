#pragma once

#include <string>

#include "darkroom/core/result.h"
#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "load_weights.h"
#include "weight_files.h"

namespace darkroom {

// The original checkpoints of Stable Diffusion 1 and 2: one file with all parts, under the names of the training code that was
// published with the paper (Rombach et al. 2022), and without configs. What a config would say is read off the tensors' shapes;
// what shapes do not tell is what all published files of that generation have.

inline constexpr const char* kOriginalUNetPrefix = "model.diffusion_model.";
inline constexpr const char* kOriginalVaePrefix = "first_stage_model.";
inline constexpr const char* kOriginalTextPrefix = "cond_stage_model.";
inline constexpr const char* kOriginalOpenClipPrefix = "cond_stage_model.model.";  ///< Version 2: as open_clip stores it.

/// Whether the file holds a tensor with that prefix.
bool has_prefix(const WeightFiles& weights, const std::string& prefix);
/// The architecture of a part. Errors: kNotFound (the file has no such part), kFailedPrecondition (a tensor that every such part
/// has is missing, or the shapes make no network that this program has).
Result<UNetConfig> original_unet_config(const WeightFiles& weights);
Result<VaeConfig> original_vae_config(const WeightFiles& weights);
Result<ClipTextConfig> original_text_config(const WeightFiles& weights);

/// The names of a part's parameters in the file.
WeightNaming original_unet_naming(const UNetConfig& config);
WeightNaming original_vae_naming(const VaeConfig& config);
WeightNaming original_text_naming(const ClipTextConfig& config, bool is_open_clip);

}  // namespace darkroom
