#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stop_token>
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

/// Loads one component onto the CPU in float32. Weights that are stored as float32 are views of the mapped file: no copy is made, processes
/// that load the same file share its memory, and changing a parameter changes this process's pages only (the file must not be cut short
/// while the model lives); float16, bfloat16 and float64 are converted. Reads a single file, shards with an index, and `.fp16` variants
/// when there is nothing else. Where the component's parent is a file (MODEL.safetensors/unet), that file is read as an original
/// checkpoint of Stable Diffusion 1 or 2 and the config is read off its shapes. Errors: kNotFound (folder, config or weights, no such
/// part in the file), kFailedPrecondition (another model's config; only pickle weights; a tensor missing, surplus or of another shape: the
/// message names it, the shapes and the file), kCorruptData (damaged file).
Result<UNet2DConditionModel> load_unet(const std::string& component_folder);
/// As load_unet, and also reads a U-Net with an added embedding (SDXL), which load_unet refuses because painting and training do not
/// feed one.
Result<UNet2DConditionModel> load_any_unet(const std::string& component_folder);
Result<AutoencoderKL> load_vae(const std::string& component_folder);
Result<ClipTextModel> load_text_encoder(const std::string& component_folder);

/// The type in which weights are stored.
enum class WeightsDtype { kFloat32, kFloat16 };

/// Writes config.json and the weights under the published names into an existing or new folder, as from_pretrained of
/// diffusers or transformers opens it. A stop request ends it between two tensors, and no weights are left.
/// Errors: kAlreadyExists (weights are there), kCancelled, those of the file system.
Status save_unet(FileSystem& files, const UNet2DConditionModel& unet, const std::string& component_folder,
                 WeightsDtype dtype = WeightsDtype::kFloat32, const std::stop_token& stop = {});
Status save_vae(FileSystem& files, const AutoencoderKL& vae, const std::string& component_folder,
                WeightsDtype dtype = WeightsDtype::kFloat32, const std::stop_token& stop = {});
Status save_text_encoder(FileSystem& files, const ClipTextModel& text_encoder, const std::string& component_folder,
                         WeightsDtype dtype = WeightsDtype::kFloat32, const std::stop_token& stop = {});

/// Writes the three networks into one new safetensors file on the local disk in the layout of the original checkpoints of Stable
/// Diffusion 1 (a text encoder with quick_gelu) or 2 (with gelu), as load_unet and other programs read it. It holds no tokenizer, no
/// scheduler and no configs. A stop request ends it between two tensors, and no file is left. Errors: kFailedPrecondition (the shapes
/// would tell a reader another network: the file is removed and the message names the part), kCancelled, those of the file system.
Status save_single_file(FileSystem& files, const UNet2DConditionModel& unet, const AutoencoderKL& vae, const ClipTextModel& text_encoder,
                        const std::string& path, WeightsDtype dtype = WeightsDtype::kFloat32, const std::stop_token& stop = {});

/// 64 hex digits over the canonical config and every parameter's name, dtype, shape and bytes, as held in memory: how the
/// weights were stored (float32, float16, shards) does not matter beyond their values. Empty when a stop was requested before it was done.
std::string component_fingerprint(const UNet2DConditionModel& unet, const std::stop_token& stop = {});
std::string component_fingerprint(const AutoencoderKL& vae, const std::stop_token& stop = {});
std::string component_fingerprint(const ClipTextModel& text_encoder, const std::stop_token& stop = {});

/// What a model holds beside its weights: a model folder, or an original checkpoint as one safetensors file, whose parts have the same
/// paths as a folder's.
struct ModelFolder {
  std::string path;
  std::string side_path;  ///< Where tokenizer/ and scheduler/ lie: `path`, or the folder of a single file.
  bool has_unet = false;
  bool has_vae = false;
  bool has_text_encoder = false;
  bool has_text_encoder_2 = false;  ///< SDXL's second one.
  bool has_tokenizer = false;
  nlohmann::json scheduler_config;  ///< scheduler/scheduler_config.json, version 1's for a single file of version 1; null when absent.

  std::string unet_folder() const { return path + "/unet"; }
  std::string vae_folder() const { return path + "/vae"; }
  std::string text_encoder_folder() const { return path + "/text_encoder"; }
  std::string text_encoder_2_folder() const { return path + "/text_encoder_2"; }
  std::string tokenizer_folder() const { return side_path + "/tokenizer"; }
};

/// Looks at a model folder or a single file without reading weights. Errors: kNotFound (no such path, or none of the parts in it),
/// kCorruptData (JSON that cannot be parsed, a damaged file), kFailedPrecondition (a pickle file).
Result<ModelFolder> open_model_folder(const std::string& path);

/// Writes model_index.json (StableDiffusionPipeline, absent parts as null) and scheduler/scheduler_config.json.
Status save_model_index(FileSystem& files, const std::string& model_folder, const nlohmann::json& scheduler_config);

/// Number of scalar parameters of a module.
int64_t count_parameters(const torch::nn::Module& module);

}  // namespace darkroom
