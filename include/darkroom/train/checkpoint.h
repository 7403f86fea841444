#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/shared_output.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "darkroom/optim/adamw.h"
#include "darkroom/optim/ema.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {

/// The values that a checkpoint holds of a rank's slices, float32.
struct StateValues {
  torch::Tensor weights;
  torch::Tensor average;
  torch::Tensor first_moment;
  torch::Tensor second_moment;
};

/// What a training run holds in memory and a checkpoint on disk.
struct TrainingState {
  FlatParameters& parameters;
  AdamW& optimizer;
  Ema& ema;
  /// Writes what a component folder holds besides the weights: config.json.
  std::function<Status(FileSystem&, const std::string& folder)> save_config;
  /// The moments are cut into files of about so many bytes at most: Amazon copies no object above 5 GB in one request.
  int64_t max_moments_file_bytes = int64_t{4} << 30;
  int64_t max_piece_bytes = int64_t{64} << 20;  ///< What rank 0 holds at most of what the other ranks send it for a file.
  Communicator* ranks = &lone_rank();           ///< Each holds its slices of moments and average.
  /// What is saved instead of the values at hand, which go on changing (StateSnapshot); null: these. Counts in saving alone.
  /// REQUIRES of several ranks whose buffers have another order than files (FlatParameters::is_canonical): one is taken.
  const StateValues* snapshot = nullptr;
  /// How a rank opens a file that all of them write.
  std::function<Result<SharedOutput>(const std::string& path)> open_shared = SharedOutput::open;
};

/// A copy of what a rank would save, in memory that is kept for the next one. On the CPU, in canonical order, wherever the run's own values
/// are. Thread safety: none; nothing reads values() while take() runs.
class StateSnapshot {
 public:
  /// Makes the memory, which of a GPU's run is page-locked and takes seconds to get; else the first take() does.
  void reserve(const TrainingState& state);
  /// All ranks take one together. Errors: those of the ranks.
  Status take(const TrainingState& state);
  const StateValues& values() const { return values_; }

 private:
  StateValues values_;
};

/// Writes `checkpoints_folder`/step-NNNNNNNN/ and makes it visible in one atomic step (files/publication.h): weights, EMA
/// weights, moments, and state.json last. Kill it at any instant and the earlier checkpoints are as they were; a valid
/// checkpoint of that name is never replaced, a damaged one is first set aside. Of several ranks each writes its own ranges where all see
/// the folder, which has to be on local_files() then; else they send them to rank 0, which calls this.
/// Errors: kAlreadyExists (a valid checkpoint of this step), kFailedPrecondition (one of a later format version), those of the file system.
Status save_checkpoint(FileSystem& files, const std::string& checkpoints_folder, const CheckpointRecord& record, TrainingState& state);

/// Puts a checkpoint's moments and EMA weights into `state`, whose module already holds the checkpoint's weights.
/// REQUIRES: read_checkpoint accepted the folder. Errors: kFailedPrecondition (another network's checkpoint).
Status restore_training_state(const std::string& folder, const CheckpointRecord& record, TrainingState& state);

/// Files that hold a checkpoint's moments, as its record tells. Errors: those of reading it.
Result<int64_t> count_moments_files(const std::string& folder);

/// The part of the ranks other than 0 in save_checkpoint: writes what they own, or hands it to rank 0. Errors: those of the ranks, of the
/// file system, and of rank 0 where it could not begin.
Status hand_in_training_state(const TrainingState& state);
/// The same in restore_training_state, of a checkpoint whose moments lie in `num_files` files.
Status take_training_state(TrainingState& state, int64_t num_files);

struct FoundCheckpoint {
  CheckpointPlace place;
  CheckpointRecord record;
};

/// The newest valid checkpoint. Damaged newer ones are reported as warnings and renamed to `damaged-step-NNNNNNNN`.
/// Empty when there is no checkpoint at all. Errors: kCorruptData when there are some and all are damaged; those of read_checkpoint for one
/// that may be sound.
Result<std::optional<FoundCheckpoint>> find_newest_checkpoint(FileSystem& files, const std::string& checkpoints_folder);

/// What the name of a damaged checkpoint that was set aside begins with.
inline constexpr std::string_view kDamagedPrefix = "damaged-";

/// Of checkpoints by step: all but the last `keep_last` and those whose step is a multiple of `keep_every` (0: none are). Pure.
std::vector<CheckpointPlace> superfluous_checkpoints(const std::vector<CheckpointPlace>& places, int64_t keep_last, int64_t keep_every);

/// Removes all but the last `keep_last` checkpoints and those whose step is a multiple of `keep_every` (0: none are). What cannot be
/// removed costs the others nothing. Errors: the first of those of the file system.
Status prune_checkpoints(FileSystem& files, const std::string& checkpoints_folder, int64_t keep_last, int64_t keep_every);

}  // namespace darkroom
