#include "opening/remote_models.h"

#include <chrono>
#include <utility>

#include "darkroom/core/clock.h"
#include "darkroom/core/log.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "darkroom/stores/model_copy.h"

namespace darkroom {
namespace {

constexpr std::chrono::hours kLeftoverAge{24};  // What was begun before is of the dead: no model takes as long to store.

bool is_remote(const Location& place) { return !place.store->local_path(place.path).has_value(); }

/// Nothing is asked below a file: many servers answer that with a refusal.
Result<bool> is_remote_checkpoint(const Location& place) {
  if (!is_remote(place)) {
    return false;
  }
  const Result<FileInfo> info = place.store->stat(place.path);
  if (info.is_ok() ? !info->is_folder : info.status().code() == StatusCode::kNotFound) {
    return false;
  }
  return info.is_ok() ? (place / kCheckpointRecordFile).exists() : info.status();
}

/// Of a checkpoint: its record and the weights that are used.
Result<LocalCopy> fetch_used_part(const Location& place, const ModelSource& source, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const RecordedCheckpoint checkpoint, read_checkpoint_record(place));
  const std::string part = (source.weights == "ema" ? "ema" : checkpoint.record.component) + "/";
  const auto is_used = [&](const std::string& name) { return name == kCheckpointRecordFile || name.starts_with(part); };
  return LocalCopy::fetch(place, {.takes = is_used, .wanted_bytes = {}, .stop = stop});
}

/// The model folder that a checkpoint names, where that is not of this machine.
Result<std::string> named_frozen_parts(const std::string& model) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_checkpoint, is_local_checkpoint(model));
  if (!is_checkpoint) {
    return std::string();
  }
  DARKROOM_ASSIGN_OR_RETURN(const RecordedCheckpoint checkpoint, read_checkpoint_record(local_files(), model));
  const std::string& path = checkpoint.record.frozen_path;
  return path.find("://") == std::string::npos ? std::string() : path;
}

/// What an earlier writer of the same output left, who died: nobody else looks for it. Where it cannot be found out, it stays.
Status sweep_leftovers(const Location& place) {
  const Result<SweepReport> swept = place.store->sweep_name(place.path, kLeftoverAge, system_clock().wall());
  if (!swept.is_ok()) {
    log_detail("what an earlier start left of {} may stay: {}", place.uri(), swept.status().message());
    return swept.status().code() == StatusCode::kCancelled ? swept.status() : Status::ok();
  }
  if (swept->num_uploads + swept->num_temporaries > 0) {
    log_info("an earlier start left {} uploads and {} files of {}: they are removed", swept->num_uploads, swept->num_temporaries,
             place.uri());
  }
  return Status::ok();
}

}  // namespace

Result<SourceCopies> fetch_source(StoreSet& stores, ModelSource& source, const std::stop_token& stop) {
  SourceCopies copies;
  DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(source.model, Access::kRead));
  DARKROOM_ASSIGN_OR_RETURN(source.has_used_part_only, is_remote_checkpoint(place));
  DARKROOM_ASSIGN_OR_RETURN(
      copies.model, source.has_used_part_only ? fetch_used_part(place, source, stop) : fetch_model_files(stores, source.model, {}, stop));
  source.model = copies.model->path();
  if (source.frozen.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(source.frozen, named_frozen_parts(source.model));
  }
  if (!source.frozen.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(copies.frozen, fetch_model_files(stores, source.frozen, {}, stop));
    source.frozen = copies.frozen->path();
  }
  return copies;
}

Status write_model_at(StoreSet& stores, const std::string& uri, ModelForm form, const std::stop_token& stop,
                      const std::function<Status(const std::string& path)>& write) {
  DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(uri, Access::kWrite));
  if (const auto local = place.store->local_path(place.path)) {
    return write(*local);
  }
  const Status taken = Status::already_exists("the output is there already; remove it or name another:", place.uri());
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, place.exists());
  DARKROOM_RETURN_IF_ERROR(is_there ? taken : Status::ok());
  DARKROOM_RETURN_IF_ERROR(sweep_leftovers(place));
  DARKROOM_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::make());
  const std::string copy = join_path(scratch.path(), place.name());
  DARKROOM_RETURN_IF_ERROR(write(copy));
  DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, form == ModelForm::kFolder
                                                              ? publish_tree_there(copy, "model_index.json", place, stop)
                                                              : copy_file_there(copy, place, stop));
  return outcome == PublishOutcome::kPublished ? Status::ok() : taken;
}

Result<OutputPlace> OutputPlace::open(StoreSet& stores, const std::string& uri) {
  DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(uri, Access::kWrite));
  if (auto local = place.store->local_path(place.path)) {
    return OutputPlace(*std::move(local), place);
  }
  DARKROOM_ASSIGN_OR_RETURN(ScratchFolder scratch, ScratchFolder::make());
  OutputPlace output(join_path(scratch.path(), place.name()), place);
  output.scratch_.emplace(std::move(scratch));
  return output;
}

Status OutputPlace::store() const {
  if (!scratch_.has_value()) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, local_files().list(scratch_->path()));
  for (const FileInfo& file : files) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(local_files(), file.path));
    DARKROOM_RETURN_IF_ERROR(place_.store->replace_small((place_.parent() / file_name(file.path)).path, bytes));
  }
  return Status::ok();
}

}  // namespace darkroom
