#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/optim/adamw.h"
#include "darkroom/optim/ema.h"
#include "darkroom/optim/flat_parameters.h"

namespace darkroom {

/// state.json of a checkpoint (docs/formats/checkpoint.md), besides the files' sizes and hashes.
struct CheckpointRecord {
  int64_t step = 0;                                             ///< Steps done.
  int64_t samples = 0;                                          ///< Samples seen.
  int64_t batch_number = 0;                                     ///< The next global batch of the canonical order.
  int64_t optimizer_updates = 0;                                ///< For AdamW's bias correction.
  std::string component;                                        ///< What is trained, and its folder: "unet" or "vae".
  std::string index_hash;                                       ///< Of the dataset index.
  std::string recipe;                                           ///< The resolved recipe, TOML.
  std::string frozen_path;                                      ///< Model folder of the frozen parts.
  std::map<std::string, std::string> frozen_fingerprints = {};  ///< "vae", "text_encoder" -> fingerprint; empty for the autoencoder.
  std::string tokenizer_dialect = {};                           ///< "hf" or "open_clip"; empty for the autoencoder.
  double loss_scale = 1.0;                                      ///< 1 in float32.
};

/// What a training run holds in memory and a checkpoint on disk.
struct TrainingState {
  FlatParameters& parameters;
  AdamW& optimizer;
  Ema& ema;
  /// Writes the module's present parameters as a component folder (config.json and weights).
  std::function<Status(FileSystem&, const std::string& folder)> save_component;
};

/// The folder's name: step-00001000.
std::string checkpoint_name(int64_t step);

/// Writes `checkpoints_folder`/step-NNNNNNNN/ and makes it visible in one atomic step (files/publication.h): weights, EMA
/// weights, moments, and state.json last. Kill it at any instant and the earlier checkpoints are as they were; a valid
/// checkpoint of that name is never replaced, a damaged one is first set aside.
/// Errors: kAlreadyExists (a valid checkpoint of this step), those of the file system.
Status save_checkpoint(FileSystem& files, const std::string& checkpoints_folder, const CheckpointRecord& record, TrainingState& state);

/// Reads state.json and checks size and SHA-256 of every file. Errors: kNotFound (no such folder, or no state.json in it),
/// kCorruptData naming the damaged file, kFailedPrecondition (a later format version).
Result<CheckpointRecord> read_checkpoint(FileSystem& files, const std::string& folder);

/// Puts a checkpoint's moments and EMA weights into `state`, whose module already holds the checkpoint's weights.
/// REQUIRES: read_checkpoint accepted the folder. Errors: kFailedPrecondition (another network's checkpoint).
Status restore_training_state(const std::string& folder, const CheckpointRecord& record, TrainingState& state);

struct CheckpointPlace {
  std::string path;
  int64_t step = 0;
  bool operator==(const CheckpointPlace&) const = default;
};

/// The checkpoints in a folder (those that have a state.json; not looked into), by step. Fine when the folder is missing.
Result<std::vector<CheckpointPlace>> list_checkpoints(FileSystem& files, const std::string& checkpoints_folder);

struct FoundCheckpoint {
  CheckpointPlace place;
  CheckpointRecord record;
};

/// The newest valid checkpoint. Damaged newer ones are reported as warnings and renamed to `damaged-step-NNNNNNNN`.
/// Empty when there is no checkpoint at all. Errors: kCorruptData when there are some and all are damaged.
Result<std::optional<FoundCheckpoint>> find_newest_checkpoint(FileSystem& files, const std::string& checkpoints_folder);

/// Removes all but the last `keep_last` checkpoints and those whose step is a multiple of `keep_every` (0: none are).
Status prune_checkpoints(FileSystem& files, const std::string& checkpoints_folder, int64_t keep_last, int64_t keep_every);

}  // namespace darkroom
