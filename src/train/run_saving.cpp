#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <future>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/scratch.h"
#include "darkroom/train/run_files.h"
#include "step_settings.h"
#include "training_run.h"

namespace darkroom {

/// A full spool costs what is there already, not the run.
Status TrainingRun::write_checkpoint(const SaveJob& job, TrainingState& state) {
  const std::string folder = in_folder(kRunCheckpointsFolder);
  Status saved = save_checkpoint(files_, folder, job.record, state);
  // Of several ranks the others have done their part and do not do it again.
  while (saved.code() == StatusCode::kResourceExhausted && remote_ != nullptr && ranks().size() == 1) {
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_free, free_bytes_at(remote_->spool()));
    DARKROOM_ASSIGN_OR_RETURN(const bool has_room, remote_->make_room(num_free));
    if (!has_room) {
      break;
    }
    saved = save_checkpoint(files_, folder, job.record, state);
  }
  DARKROOM_RETURN_IF_ERROR(saved);
  spooled_step_ = remote_ != nullptr ? job.record.step : spooled_step_;
  return {};
}

/// A store that is away costs a run that goes on no step: the checkpoint waits here for the next one, and is not where it belongs.
Result<bool> TrainingRun::store_or_prune(const SaveJob& job) {
  const Recipe::Checkpoints& keep = recipe().checkpoint;
  if (remote_ == nullptr) {
    const Status pruned = prune_checkpoints(files_, in_folder(kRunCheckpointsFolder), keep.keep_last, keep.keep_every);
    if (!pruned.is_ok()) {
      log_warning("checkpoints that need not be kept are there still: {}", pruned.message());
    }
    return true;
  }
  const Status stored = remote_->store_checkpoint(job.record.step, keep, job.after);
  if (stored.code() == StatusCode::kUnavailable && job.after == AfterSaving::kGoesOn) {
    log_warning("the checkpoint of step {} is not stored; training goes on, and it is tried again with the next one: {}", job.record.step,
                stored.message());
    return false;
  }
  DARKROOM_RETURN_IF_ERROR(stored);
  return true;
}

// Whatever ended the run: what is in order and was not stored must not go with the spool.
Status TrainingRun::keep_unstored_checkpoint(Status failure) {
  if (remote_ == nullptr || spooled_step_ <= stored_step_ || failure.code() == StatusCode::kAlreadyExists ||
      remote_->has_stored(spooled_step_)) {
    return failure;
  }
  const Result<std::string> kept = remote_->keep_checkpoint_here(spooled_step_);
  if (!kept.is_ok()) {
    log_warning("the checkpoint of step {} was not stored, and it is not here either: {}", spooled_step_, kept.status().message());
    return failure;
  }
  // A launcher starts anew what is kUnavailable, and from the checkpoint before: a lost rank, but not a store that took no checkpoint.
  const bool is_of_store = spooled_step_ == steps_done_ && failure.code() == StatusCode::kUnavailable;
  failure = is_of_store && ranks().size() > 1 ? Status::failed_precondition(failure.message()) : failure;
  return failure.with_context(
      fmt::format("the checkpoint of step {} was not stored and is kept here; --resume {} goes on from it", spooled_step_, *kept));
}

Status TrainingRun::save(AfterSaving after) {
  DARKROOM_RETURN_IF_ERROR(settle());
  spend(Spending::kTraining);
  get_on(remote_ == nullptr ? "saving a checkpoint" : "");  // A store may be waited for; it has limits of its own.
  DARKROOM_RETURN_IF_ERROR(finish_background_save());
  // All ranks write a checkpoint, or none; whether the store has taken it only rank 0 knows.
  const bool is_written = saved_step_ == steps_done_;
  if (is_written && (!is_main() || stored_step_ == steps_done_)) {
    return {};
  }
  if (is_main()) {
    DARKROOM_RETURN_IF_ERROR(restore_lost_folder());
    // Lines up to a checkpoint's step must be there when the run goes on from it.
    DARKROOM_RETURN_IF_ERROR(metrics_->sync());
    DARKROOM_RETURN_IF_ERROR(events_->sync());
  }
  TraceSpan span(options_.spans, "save");  // What the run waits for: of a background save the snapshot.
  span.set("darkroom.step", steps_done_);
  const SaveJob job{.record = record(), .seconds = is_main() ? wall_seconds() : 0, .after = after};
  const bool at_once = after == AfterSaving::kEnds || !saves_in_background(recipe());  // Of an end nothing goes on meanwhile.
  const Status saved = is_written ? store_written(job) : at_once ? save_now(job) : save_in_background(job);
  span.fail(saved);
  return saved;
}

Status TrainingRun::save_now(const SaveJob& job) {
  const bool needs_snapshot = ranks().size() > 1 && !parameters_->is_canonical();
  TrainingState written = *state_;
  if (needs_snapshot) {
    DARKROOM_RETURN_IF_ERROR(snapshot_.take(*state_));
    written.snapshot = &snapshot_.values();
  }
  if (!is_main()) {
    saved_step_ = steps_done_;
    return hand_in_training_state(written);
  }
  DARKROOM_RETURN_IF_ERROR(write_checkpoint(job, written));
  saved_step_ = steps_done_;
  return store_written(job);
}

/// Rank 0's own part of a checkpoint that is written: the other ranks hear nothing of it.
Status TrainingRun::store_written(const SaveJob& job) {
  DARKROOM_RETURN_IF_ERROR(facts_->write(steps_done_, wall_seconds()));
  spend(Spending::kSaving);
  DARKROOM_RETURN_IF_ERROR(ledger_->record_saved(steps_done_));
  const Result<bool> is_stored = store_or_prune(job);
  spend(Spending::kSaving);
  stored_step_ = is_stored.is_ok() && *is_stored ? steps_done_ : stored_step_;
  return is_stored.status();
}

// What is written is the snapshot, and the other ranks are reached by connections that only saving uses. Until it has ended, spooled_step_,
// facts_ and remote_ are its own.
Status TrainingRun::save_in_background(const SaveJob& job) {
  DARKROOM_RETURN_IF_ERROR(snapshot_.take(*state_));
  spend(Spending::kSaving);
  if (is_main()) {
    DARKROOM_RETURN_IF_ERROR(remote_ != nullptr ? remote_->mark_logs(steps_done_) : Status::ok());
    DARKROOM_RETURN_IF_ERROR(ledger_->record_snapshot(steps_done_));
    spend(Spending::kSaving);  // The ledger's disk.
  }
  background_step_ = steps_done_;
  background_save_ = std::async(std::launch::async, [this, job] {
    const auto save = [&]() -> Result<bool> {
      if (!is_main()) {
        DARKROOM_RETURN_IF_ERROR(hand_in_training_state(*snapshot_state_));
        return true;
      }
      DARKROOM_RETURN_IF_ERROR(write_checkpoint(job, *snapshot_state_));
      DARKROOM_RETURN_IF_ERROR(facts_->write(job.record.step, job.seconds));
      return store_or_prune(job);
    };
    // An exception must not wait for whoever asks for the result: the other ranks' threads would wait for this one's part meanwhile.
    Result<bool> saved = [&]() -> Result<bool> {
      try {
        return save();
      } catch (const std::exception& failure) {
        saving_ranks_.reset();  // Closes its connections.
        return Status::internal("saving a checkpoint failed:", failure.what());
      }
    }();
    background_save_failed_ = !saved.is_ok();
    return saved;
  });
  return {};
}

bool TrainingRun::background_save_has_ended() const {
  return background_save_.valid() && background_save_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

/// Of a run alone: its folder went while the checkpoint was written. The next save fills it anew, as it does for one that went before.
Result<bool> TrainingRun::may_save_again(const Status& failure) {
  if (failure.is_ok() || remote_ != nullptr || ranks().size() > 1 || saving_ranks_ == nullptr) {  // Closed by an exception.
    return false;
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files_.exists(in_folder(kRunFactsFile)));
  if (!is_there) {
    log_warning("the checkpoint of step {} was lost with the run folder and is written again: {}", background_step_, failure.message());
  }
  return !is_there;
}

// All ranks come here at the same step and hear of a failure at any of them, so that none waits for another.
Status TrainingRun::finish_background_save() {
  if (!background_save_.valid()) {
    return {};
  }
  const Result<bool> own = background_save_.get();
  spend(Spending::kSaving);
  store_waiting_folders();
  const Result<bool> is_to_repeat = may_save_again(own.status());
  if (is_to_repeat.is_ok() && *is_to_repeat) {
    background_save_failed_ = false;
    return {};
  }
  const Result<std::vector<int64_t>> codes = gather_numbers(ranks(), static_cast<int64_t>(own.status().code()));
  DARKROOM_RETURN_IF_ERROR(own.status());  // Of both failures the one that says more.
  DARKROOM_RETURN_IF_ERROR(codes.status());
  for (size_t rank = 0; rank < codes->size(); ++rank) {
    const auto code = static_cast<StatusCode>((*codes)[rank]);
    if (code != StatusCode::kOk) {
      return Status::make(code, "another rank could not save the checkpoint, as it says itself (step, rank):", background_step_, rank);
    }
  }
  saved_step_ = background_step_;
  stored_step_ = *own ? background_step_ : stored_step_;
  return {};
}

/// Previews that came while the store was the other thread's.
void TrainingRun::store_waiting_folders() {
  for (const std::string& folder : std::exchange(folders_to_store_, {})) {
    remote_->store_folder(folder);
  }
}

// Of a run that has failed otherwise: the other ranks may be gone, or write on and wait for this one's part.
void TrainingRun::end_background_save() {
  if (!background_save_.valid()) {
    return;
  }
  const Result<bool> saved = background_save_.get();
  store_waiting_folders();
  if (!saved.is_ok()) {
    log_warning("the checkpoint of step {} could not be saved: {}", background_step_, saved.status().message());
  }
  stored_step_ = saved.is_ok() && *saved ? background_step_ : stored_step_;
}

}  // namespace darkroom
