#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/nn/write_model.h"
#include "darkroom/text/clip_tokenizer.h"
#include "darkroom/train/checkpoint.h"

namespace darkroom {

/// A model as a command line names it.
struct ModelSource {
  std::string model;            ///< Model folder, checkpoint of a run, or original checkpoint of Stable Diffusion 1 or 2 as one file.
  std::string weights = "ema";  ///< Of a checkpoint: "ema", or "unet" for the last ones.
  std::string frozen;           ///< Model folder of a checkpoint's frozen parts; empty: the one that it names.
  /// What the U-Net predicts, "epsilon" or "v_prediction"; empty: what the model says. A single file of version 2 does not say it.
  std::string prediction_type;
  /// Folder with CLIP's vocabulary, for a single file that has no tokenizer beside it; empty: none.
  std::string shipped_tokenizer;
  /// The checkpoint is a copy of its record and the weights that are used (remote_models.h); else every file of it is checked.
  bool has_used_part_only = false;
  /// `frozen` and `prediction_type` were given for several models: each takes what it is in want of, and leaves the rest.
  bool is_one_of_several = false;
};

/// What --prediction-type takes, and ModelSource's value for each.
const std::vector<std::pair<std::string, std::string>>& prediction_choices();

/// The folder that holds CLIP's vocabulary, named as find_resource() wants it.
inline constexpr const char* kShippedTokenizer = "models/tiny/tokenizer";

/// Where everything of a model lies.
struct FoundModel {
  ModelParts parts;              ///< A checkpoint's trained part and the frozen ones; the scheduler with the prediction type asked for.
  std::string folder;            ///< The model folder or file that parts, tokenizer and scheduler are of; empty: a checkpoint without one.
  std::string tokenizer_folder;  ///< Empty: none.
  bool is_single_file = false;
  bool is_version_1 = false;  ///< Of a single file: its text encoder is OpenAI's.
  bool has_own_tokenizer = false;
  std::optional<CheckpointRecord> checkpoint;
};

/// Whether a local model is a checkpoint's folder. Errors: those of looking at it, kNotFound among them.
Result<bool> is_local_checkpoint(const std::string& model);

/// The parts of a model folder or single file. Errors: those of opening it.
Result<FoundModel> find_model_folder(const std::string& path, const std::string& shipped_tokenizer);

/// Looks where the parts lie, without reading weights. Refuses SDXL's two text encoders. Errors: kInvalidArgument (a flag's value, a flag
/// that does not belong to the model), kNotFound, kCorruptData, those of opening checkpoint and folder.
Result<FoundModel> find_model(const ModelSource& source);

/// The schedule. Errors: kFailedPrecondition where nothing says it: a single file of version 2.
Result<nlohmann::json> require_scheduler(const FoundModel& model);

/// The model's tokenizer. The shipped vocabulary pads as the model's version does: version 1 with the end token, version 2 with id 0.
/// Errors: kNotFound (the model has none), those of loading.
Result<std::unique_ptr<ClipTokenizer>> load_tokenizer(const FoundModel& model, TokenizerDialect dialect);

/// Writes load_tokenizer's into a folder; no function for a model without one.
TokenizerWriter tokenizer_writer(const FoundModel& model);

}  // namespace darkroom
