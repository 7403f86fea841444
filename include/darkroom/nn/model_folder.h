#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"

namespace darkroom {

// Reading and writing of model folders in the diffusers layout (docs/formats/model_folder.md). A component folder is
// MODEL/unet, MODEL/vae, MODEL/text_encoder or a checkpoint's unet/ and ema/: config.json beside its safetensors.

/// Loads one component onto the CPU in float32 (stored float16 and bfloat16 are converted). Reads a single file, shards with an index, and
/// `.fp16` variants when there is nothing else. Errors: kNotFound (folder, config or weights), kFailedPrecondition (another model's config;
/// only pickle weights; a tensor missing, surplus or of another shape: the message names it, the shapes and the file), kCorruptData
/// (damaged file).
Result<UNet2DConditionModel> load_unet(const std::string& component_folder);
Result<AutoencoderKL> load_vae(const std::string& component_folder);
Result<ClipTextModel> load_text_encoder(const std::string& component_folder);

/// The type in which weights are stored.
enum class WeightsDtype { kFloat32, kFloat16 };

/// Writes config.json and the weights under the published names into an existing or new folder, as from_pretrained of
/// diffusers or transformers opens it. Errors: kAlreadyExists (weights are there), those of the file system.
Status save_unet(FileSystem& files, const UNet2DConditionModel& unet, const std::string& component_folder,
                 WeightsDtype dtype = WeightsDtype::kFloat32);
Status save_vae(FileSystem& files, const AutoencoderKL& vae, const std::string& component_folder,
                WeightsDtype dtype = WeightsDtype::kFloat32);
Status save_text_encoder(FileSystem& files, const ClipTextModel& text_encoder, const std::string& component_folder,
                         WeightsDtype dtype = WeightsDtype::kFloat32);

/// 64 hex digits over the canonical config and every parameter's name, dtype, shape and bytes, as held in memory: how the
/// weights were stored (float32, float16, shards) does not matter beyond their values.
std::string component_fingerprint(const UNet2DConditionModel& unet);
std::string component_fingerprint(const AutoencoderKL& vae);
std::string component_fingerprint(const ClipTextModel& text_encoder);

/// What a model folder holds beside its weights.
struct ModelFolder {
  std::string path;
  bool has_unet = false;
  bool has_vae = false;
  bool has_text_encoder = false;
  bool has_tokenizer = false;
  nlohmann::json scheduler_config;  ///< scheduler/scheduler_config.json; null when absent.

  std::string unet_folder() const { return path + "/unet"; }
  std::string vae_folder() const { return path + "/vae"; }
  std::string text_encoder_folder() const { return path + "/text_encoder"; }
  std::string tokenizer_folder() const { return path + "/tokenizer"; }
};

/// Looks at a folder without reading weights. Errors: kNotFound (no such folder, or none of the parts in it),
/// kCorruptData (JSON that cannot be parsed).
Result<ModelFolder> open_model_folder(const std::string& path);

/// Writes model_index.json (StableDiffusionPipeline, absent parts as null) and scheduler/scheduler_config.json.
Status save_model_index(FileSystem& files, const std::string& model_folder, const nlohmann::json& scheduler_config);

/// Number of scalar parameters of a module.
int64_t count_parameters(const torch::nn::Module& module);

}  // namespace darkroom
