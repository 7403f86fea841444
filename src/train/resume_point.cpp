#include "resume_point.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

// Whether the run folder's checkpoint is the one that was read at `path`. A damaged one is not: the run saves its own in its place.
Result<bool> is_same_checkpoint(FileSystem& files, const CheckpointPlace& own, const std::string& path) {
  if (own.path == path) {
    return true;
  }
  const Status valid = read_checkpoint(files, own.path).status();
  if (valid.code() == StatusCode::kCorruptData) {
    log_warning("the checkpoint of step {} in the run folder is damaged and is not used: {}", own.step, valid.message());
    return false;
  }
  DARKROOM_RETURN_IF_ERROR(valid);
  // A record holds the hashes of all the rest.
  DARKROOM_ASSIGN_OR_RETURN(const std::string record, read_file(files, join_path(own.path, kCheckpointRecordFile)));
  DARKROOM_ASSIGN_OR_RETURN(const std::string named, read_file(files, join_path(path, kCheckpointRecordFile)));
  return record == named ? Result<bool>(true) : another_checkpoint(own.path);
}

Result<ResumePoint> named_checkpoint(FileSystem& files, const std::vector<CheckpointPlace>& there, const std::string& given) {
  const std::string path(without_trailing_slashes(given));
  DARKROOM_ASSIGN_OR_RETURN(auto record, read_checkpoint(files, path));
  if (!there.empty() && there.back().step > record.step) {
    return newer_checkpoint(there.back().path);
  }
  const bool has_step = !there.empty() && there.back().step == record.step;
  DARKROOM_ASSIGN_OR_RETURN(const bool is_own, has_step ? is_same_checkpoint(files, there.back(), path) : Result<bool>(false));
  const CheckpointPlace place{path, record.step};
  return ResumePoint{.found = FoundCheckpoint{place, std::move(record)}, .is_own = is_own};
}

}  // namespace

Status starts_over(const std::string& checkpoint) {
  return Status::failed_precondition(
      "--resume none would start over a run that has checkpoints; take --resume auto to go on, another --output, or remove:", checkpoint);
}

Status newer_checkpoint(const std::string& newest) {
  return Status::failed_precondition(
      "the run folder holds newer checkpoints than the one to resume from; take --resume auto to go on from the newest, another --output, "
      "or move them away; the newest:",
      newest);
}

Status another_checkpoint(const std::string& own) {
  return Status::failed_precondition(
      "the run folder holds another checkpoint of the step that --resume names; take --resume auto to go on from it, another --output, or "
      "move it away:",
      own);
}

Status check_same_run(const Recipe& recipe, const FoundCheckpoint& found) {
  DARKROOM_ASSIGN_OR_RETURN(const Recipe before, parse_recipe(found.record.recipe, found.place.path + "/state.json"));
  const auto conflicts = conflicting_fields(recipe, before);
  if (!conflicts.empty()) {
    return Status::failed_precondition(
        fmt::format("the run folder holds a run of another recipe; take another --output, or set these fields back: {}; checkpoint:",
                    fmt::join(conflicts, ", ")),
        found.place.path);
  }
  return {};
}

Result<bool> takes_newest(FileSystem& files, const TrainOptions& options, int64_t newest_step) {
  if (options.resume == "auto") {
    return true;
  }
  if (!options.is_restart || newest_step < 0) {
    return false;
  }
  if (options.resume == "none") {
    return true;
  }
  const auto record = read_checkpoint(files, std::string(without_trailing_slashes(options.resume)));
  const StatusCode code = record.status().code();
  if (code == StatusCode::kNotFound || code == StatusCode::kCorruptData) {  // The run itself may have removed it since.
    log_warning("this restart goes on from the run's newest checkpoint, because the one that --resume names cannot be read: {}",
                record.status().message());
    return true;
  }
  DARKROOM_RETURN_IF_ERROR(record.status());
  return newest_step > record->step;
}

Result<ResumePoint> find_resume_point(FileSystem& files, const std::string& checkpoints_folder, const TrainOptions& options) {
  ResumePoint point;
  std::vector<CheckpointPlace> there;
  if (options.resume != "auto") {  // Else the newest one is looked for, whatever there is.
    DARKROOM_ASSIGN_OR_RETURN(there, list_checkpoints(files, checkpoints_folder));
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool is_newest, takes_newest(files, options, there.empty() ? -1 : there.back().step));
  if (is_newest) {
    DARKROOM_ASSIGN_OR_RETURN(point.found, find_newest_checkpoint(files, checkpoints_folder));
    point.is_own = point.found.has_value();
  } else if (options.resume == "none") {
    if (!there.empty()) {
      return starts_over(checkpoints_folder);
    }
  } else {
    DARKROOM_ASSIGN_OR_RETURN(point, named_checkpoint(files, there, options.resume));
  }
  if (point.found.has_value()) {
    DARKROOM_RETURN_IF_ERROR(check_same_run(options.recipe, *point.found));
  }
  return point;
}

Result<std::string> find_initial_weights(FileSystem& files, const std::string& init_from, const std::string& component) {
  if (init_from.empty()) {
    return std::string();
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool is_checkpoint, files.exists(join_path(init_from, "state.json")));
  if (is_checkpoint) {
    DARKROOM_ASSIGN_OR_RETURN(const auto record, read_checkpoint(files, init_from));
    if (record.component != component) {
      return Status::failed_precondition("the checkpoint of --init-from trains another part (checkpoint, want, got):", init_from, component,
                                         record.component);
    }
  }
  const std::string folder = join_path(init_from, component);
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files.exists(folder));
  if (!exists) {
    return Status::not_found("--init-from names neither a checkpoint nor a model folder; it has no such folder:", folder);
  }
  return folder;
}

Status check_continuation(const CheckpointRecord& before, const CheckpointRecord& now) {
  if (before.component != now.component) {
    return Status::failed_precondition("the checkpoint trains another part (want, got):", now.component, before.component);
  }
  if (before.index_hash != now.index_hash) {
    return Status::failed_precondition(
        "the dataset is not the one that the run began with: files were added, removed or changed; restore it, or start another run with "
        "--init-from (index hash of the checkpoint, of the dataset):",
        before.index_hash, now.index_hash);
  }
  for (const auto& [part, fingerprint] : before.frozen_fingerprints) {
    const auto found = now.frozen_fingerprints.find(part);
    if (found != now.frozen_fingerprints.end() && found->second != fingerprint) {
      return Status::failed_precondition(fmt::format("the {} is not the one that the run began with (then, now):", part), fingerprint,
                                         found->second);
    }
  }
  if (!before.tokenizer_dialect.empty() && !now.tokenizer_dialect.empty() && before.tokenizer_dialect != now.tokenizer_dialect) {
    return Status::failed_precondition("the captions are tokenised in another dialect than the run began with (then, now):",
                                       before.tokenizer_dialect, now.tokenizer_dialect);
  }
  return {};
}

}  // namespace darkroom
