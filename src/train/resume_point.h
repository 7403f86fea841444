#pragma once

#include <optional>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/train/checkpoint.h"
#include "darkroom/train/train_loop.h"

namespace darkroom {

/// Whether the run goes on from the newest checkpoint of its folder, that of step `newest_step` (-1: none): --resume auto, or a restart
/// in a folder with checkpoints newer than what --resume names, or where that is gone or damaged. Errors: those of reading it otherwise.
Result<bool> takes_newest(FileSystem& files, const TrainOptions& options, int64_t newest_step);

/// Refusals of what --resume asks of a folder with checkpoints (kFailedPrecondition), naming one of them: it is none; the folder has newer
/// ones than it names; the folder has another one of that step.
Status starts_over(const std::string& checkpoint);
Status newer_checkpoint(const std::string& newest);
Status another_checkpoint(const std::string& own);

/// Where a run goes on.
struct ResumePoint {
  std::optional<FoundCheckpoint> found = {};  ///< Empty: it starts at step 0.
  bool is_own = false;                        ///< The run folder has that checkpoint: it need not be saved again.
};

/// The checkpoint that a run goes on from, by --resume. Lists the folder once, of a restart twice.
/// Errors: kFailedPrecondition (another run's folder; newer checkpoints than the one named, or another of its step; another recipe), those
/// of reading checkpoints.
Result<ResumePoint> find_resume_point(FileSystem& files, const std::string& checkpoints_folder, const TrainOptions& options);

/// The component folder that --init-from stands for: of a checkpoint or of a model folder; empty when it is not given.
/// Errors: kNotFound, kCorruptData (a damaged checkpoint), kFailedPrecondition (it trains another part).
Result<std::string> find_initial_weights(FileSystem& files, const std::string& init_from, const std::string& component);

/// Errors: kFailedPrecondition when the checkpoint is of a run of another recipe, naming the fields that differ.
Status check_same_run(const Recipe& recipe, const FoundCheckpoint& found);

/// Errors: kFailedPrecondition when the dataset, its encoders or the trained part are not those of the checkpoint.
Status check_continuation(const CheckpointRecord& before, const CheckpointRecord& now);

}  // namespace darkroom
