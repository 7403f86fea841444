#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>

#include "darkroom/core/status.h"
#include "darkroom/files/file_system.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"

namespace darkroom {

// Whole models as new folders or files. Each appears under its name only when it is complete; what is there already is never
// replaced (kAlreadyExists). A stop request ends the writing between two tensors and leaves nothing (kCancelled).

/// Where the parts of a model are read, each a component folder as load_unet takes it; empty: the model has none.
struct ModelParts {
  std::string unet;
  std::string vae;
  std::string text_encoder;
  nlohmann::json scheduler;  ///< scheduler_config.json; null or empty where nothing tells.
  /// Of a checkpoint: "vae", "text_encoder" -> the fingerprint that its U-Net was trained with. With other parts it would paint noise.
  std::map<std::string, std::string> frozen_fingerprints = {};
};

/// The network of a part, for those who use it beside a checkpoint's U-Net. Errors: kFailedPrecondition where `parts` asks for another
/// fingerprint, those of loading.
Result<AutoencoderKL> load_frozen_vae(const ModelParts& parts);
Result<ClipTextModel> load_frozen_text_encoder(const ModelParts& parts);

/// The parts of a folder or single file.
ModelParts parts_of(const ModelFolder& model);

/// Writes the tokenizer of a model into a folder that is not there yet. No function: the model gets none. (Tokenizers are the business
/// of the module text, which networks do not know.)
using TokenizerWriter = std::function<Status(const std::string& folder)>;

/// Writes a model folder with random weights (init.h). One network is in memory at a time.
Status write_random_model(FileSystem& files, const ModelPreset& preset, uint64_t seed, WeightsDtype dtype,
                          const TokenizerWriter& write_tokenizer, const std::string& folder, const std::stop_token& stop = {});

/// Writes a model folder of those parts that there are: the same tensors, where float32 is asked for and stored. A model without a
/// scheduler gets that of sd2-base: callers ask whoever knows where there is a U-Net. Errors: kNotFound (no part at all),
/// kFailedPrecondition (another frozen part; a weight that float16 does not hold), those of loading.
Status export_model_folder(FileSystem& files, const ModelParts& parts, WeightsDtype dtype, const TokenizerWriter& write_tokenizer,
                           const std::string& folder, const std::stop_token& stop = {});

/// Writes one file of all three networks (save_single_file). Errors: kFailedPrecondition (a part is missing, or a reader could not tell
/// its architecture or, of version 1, its schedule; another frozen part; a weight that float16 does not hold), those of loading.
Status export_single_file(FileSystem& files, const ModelParts& parts, WeightsDtype dtype, const std::string& path,
                          const std::stop_token& stop = {});

}  // namespace darkroom
