#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"
#include "darkroom/stores/stores.h"
#include "darkroom/train/run_files.h"
#include "training_run.h"

namespace darkroom {

// A start over in the place of a run that trained for days, because its folder was not mounted whole, would be a costly misunderstanding.
Status TrainingRun::check_for_lost_checkpoints() {
  if (resumed_.has_value() || options_.resume != "auto") {
    return {};
  }
  DARKROOM_ASSIGN_OR_RETURN(const int64_t step, recorded_checkpoint_step(files_, in_folder(kRunFactsFile)));
  if (step == 0) {
    return {};
  }
  return Status::failed_precondition(
      "the run folder tells of a checkpoint, but has none any more: put checkpoints/ back, name the one that the run went on from "
      "(--resume PATH), or start over with --resume none or in another --output (the newest checkpoint's step, run folder):",
      step, recorded_uri(options_.output));
}

// The folder was removed, or its disk, while the run trained: what is in memory is worth more than an error.
Status TrainingRun::restore_lost_folder() {
  if (remote_ != nullptr) {
    return {};
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files_.exists(in_folder(kRunFactsFile)));
  if (is_there) {
    return {};
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool has_checkpoints, files_.exists(in_folder(kRunCheckpointsFolder)));
  if (has_checkpoints) {
    log_warning("{} is gone and is written again", in_folder(kRunFactsFile));
  } else {
    log_warning(
        "the run folder {} was emptied or replaced while the run trained; earlier checkpoints and metrics are gone, from step {} on it "
        "is filled anew",
        folder_, steps_done_);
  }
  DARKROOM_RETURN_IF_ERROR(files_.create_folders(in_folder(kRunCheckpointsFolder)));
  if (lock_ != nullptr) {
    lock_.reset();  // The folder may be the same one, whose lock nobody has twice.
    auto lock = lock_local_folder();
    if (!lock.is_ok()) {
      return lock.status().with_context("the run folder was replaced while the run trained");
    }
    lock_ = *std::move(lock);
  }
  return open_logs();
}

}  // namespace darkroom
