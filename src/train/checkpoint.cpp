#include "darkroom/train/checkpoint.h"

#include <memory>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/publication.h"
#include "darkroom/nn/component_config.h"
#include "darkroom/optim/canonical_slices.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/tensor/device_runtime.h"
#include "darkroom/tensor/safetensors.h"
#include "state_files.h"

namespace darkroom {
namespace {

// Adds every file of a checkpoint folder but state.json, by its path within the folder.
Status digest_folder(FileSystem& files, const std::string& folder, FileDigests& digests) {
  DARKROOM_ASSIGN_OR_RETURN(const auto entries, files.list_tree(folder));
  for (const auto& entry : entries) {
    const std::string name = entry.path.substr(folder.size() + 1);
    if (name != kCheckpointRecordFile && !digests.contains(name)) {
      DARKROOM_ASSIGN_OR_RETURN(digests[name], digest_file(files, entry.path));
    }
  }
  return {};
}

// `digests`: of the files that were read back already.
Status write_state_file(FileSystem& files, const std::string& folder, const CheckpointRecord& record, FileDigests digests) {
  DARKROOM_RETURN_IF_ERROR(digest_folder(files, folder, digests));
  DARKROOM_ASSIGN_OR_RETURN(const auto file, files.create(join_path(folder, kCheckpointRecordFile)));
  DARKROOM_RETURN_IF_ERROR(file->write_text(print_checkpoint_record(record, digests)));
  DARKROOM_RETURN_IF_ERROR(file->sync());
  return file->close();
}

// By the names of a moments file, in its order.
std::vector<NamedTensor> moments_of(const TrainingState& state) {
  return {{kFirstMoment, state.optimizer.first_moment()}, {kSecondMoment, state.optimizer.second_moment()}};
}

// Rank 0's part; `folder` is not visible yet.
Status write_contents(FileSystem& files, const std::string& folder, const CheckpointRecord& record, TrainingState& state) {
  DARKROOM_ASSIGN_OR_RETURN(FileDigests digests, write_state_files(files, folder, record.component, state));
  for (const std::string& component : {record.component, std::string(kEmaFolder)}) {
    DARKROOM_RETURN_IF_ERROR(state.save_config(files, join_path(folder, component)));
  }
  return write_state_file(files, folder, record, std::move(digests));
}

// Bits may also change on their way here.
Result<CheckpointRecord> read_twice(FileSystem& files, const std::string& path) {
  auto record = read_checkpoint(files, path);
  return record.status().code() == StatusCode::kCorruptData ? read_checkpoint(files, path) : std::move(record);
}

Status set_aside(FileSystem& files, const std::string& path) {
  const std::string target = join_path(parent_folder(path), std::string(kDamagedPrefix) + file_name(path));
  DARKROOM_RETURN_IF_ERROR(files.remove_tree(target));
  DARKROOM_RETURN_IF_ERROR(files.rename_no_replace(path, target));
  return files.sync_folder(parent_folder(path));
}

// A valid checkpoint of that name stays as it is.
Result<std::unique_ptr<FolderPublication>> begin_publication(FileSystem& files, const std::string& checkpoints_folder,
                                                             const std::string& name) {
  const std::string path = join_path(checkpoints_folder, name);
  DARKROOM_ASSIGN_OR_RETURN(const bool taken, files.exists(path));
  if (taken) {
    const Status valid = read_twice(files, path).status();
    if (valid.is_ok()) {
      return Status::already_exists("a valid checkpoint of this step is there already and stays as it is:", path);
    }
    if (valid.code() != StatusCode::kCorruptData && valid.code() != StatusCode::kNotFound) {
      return valid;  // It may be sound: of a later program, or not readable just now.
    }
    DARKROOM_RETURN_IF_ERROR(set_aside(files, path));
  }
  return FolderPublication::begin(files, checkpoints_folder, name);
}

// A tensor of a checkpoint, which must have the shape of what it restores.
Result<torch::Tensor> read_state(const SafetensorsFile& file, const std::string& name, at::IntArrayRef shape) {
  DARKROOM_ASSIGN_OR_RETURN(auto source, file.tensor(name));
  if (source.scalar_type() != torch::kFloat32 || source.sizes() != shape) {
    return Status::failed_precondition("the checkpoint's optimizer state is of another network (tensor, want, got):", name,
                                       c10::multiply_integers(shape), source.numel());
  }
  return source;
}

// This rank's slice of a buffer, as rank 0 sends it: in canonical order, on the CPU.
class IncomingSlice {
 public:
  IncomingSlice(TrainingState& state, torch::Tensor own)
      : state_(state), slices_(canonical_slices(state.parameters, state.ranks->size())), own_(std::move(own)), incoming_(own_) {
    if (!state.parameters.is_canonical()) {
      incoming_ = torch::empty({slices_[static_cast<size_t>(state.ranks->rank())].count}, torch::kFloat32);
    }
  }

  /// Elements `range` of the canonical order; rank 0 has their values.
  Status take(const FlatRange& range, const torch::Tensor& values) {
    return scatter_range(*state_.ranks, slices_, range, values, incoming_);
  }
  /// All have come.
  Status finish() {
    return incoming_.is_same(own_) ? Status::ok() : copy_from_canonical(*state_.ranks, state_.parameters, incoming_, own_);
  }

 private:
  TrainingState& state_;
  const RankSlices slices_;
  torch::Tensor own_;
  torch::Tensor incoming_;
};

// All ranks' part, with the same messages; the files are rank 0's, and `folder` is null elsewhere.
Status spread_moments(TrainingState& state, int64_t num_files, const std::string* folder) {
  const std::vector<NamedTensor> moments = moments_of(state);
  std::vector<IncomingSlice> slices;
  for (const NamedTensor& moment : moments) {
    slices.emplace_back(state, moment.tensor);
  }
  for (int64_t i = 0; i < num_files; ++i) {
    const FlatRange range = moments_range(state, i, num_files);
    std::shared_ptr<SafetensorsFile> file;
    if (folder != nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(file, SafetensorsFile::open(join_path(*folder, moments_file(i, num_files))));
    }
    for (size_t moment = 0; moment < moments.size(); ++moment) {
      torch::Tensor values;
      if (file != nullptr) {
        DARKROOM_ASSIGN_OR_RETURN(values, read_state(*file, moments[moment].name, {range.count}));
      }
      DARKROOM_RETURN_IF_ERROR(slices[moment].take(range, values));
    }
  }
  for (IncomingSlice& slice : slices) {
    DARKROOM_RETURN_IF_ERROR(slice.finish());
  }
  return {};
}

Status restore_moments(const std::string& folder, TrainingState& state) {
  DARKROOM_ASSIGN_OR_RETURN(const int64_t num_files, count_moments_files(folder));
  if (state.ranks->size() > 1) {
    return spread_moments(state, num_files, &folder);
  }
  for (int64_t i = 0; i < num_files; ++i) {
    const FlatRange range = moments_range(state, i, num_files);
    DARKROOM_ASSIGN_OR_RETURN(const auto moments, SafetensorsFile::open(join_path(folder, moments_file(i, num_files))));
    for (const auto& [name, own] : moments_of(state)) {
      DARKROOM_ASSIGN_OR_RETURN(const auto values, read_state(*moments, name, {range.count}));
      state.parameters.set_canonical_range(own, range, values);
    }
  }
  return {};
}

// One tensor at a time, because their layout within the flat buffer is the buffer's own matter.
Status restore_whole_average(const SafetensorsFile& averages, TrainingState& state) {
  for (const auto& [name, view] : state.parameters.named_views(state.ema.weights())) {
    DARKROOM_ASSIGN_OR_RETURN(const auto values, read_state(averages, name, view.sizes()));
    view.copy_(values);
  }
  return {};
}

// The same of the average; null elsewhere than at rank 0.
Status spread_average(TrainingState& state, const SafetensorsFile* averages) {
  IncomingSlice slice(state, state.ema.weights());
  int64_t first = 0;
  for (const FlatParameters::Entry& entry : state.parameters.entries()) {
    torch::Tensor values;
    if (averages != nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(values, read_state(*averages, entry.name, entry.shape));
      values = values.flatten();
    }
    DARKROOM_RETURN_IF_ERROR(slice.take({first, entry.count}, values));
    first += entry.count;
  }
  return slice.finish();
}

}  // namespace

void StateSnapshot::reserve(const TrainingState& state) {
  if (values_.weights.defined()) {
    return;
  }
  const RankSlices slices = canonical_slices(state.parameters, state.ranks->size());
  const int64_t count = slices[static_cast<size_t>(state.ranks->rank())].count;
  const auto memory = [&] { return empty_staging({count}, torch::kFloat32, state.parameters.options().device); };
  values_.weights = memory();
  values_.average = state.ema.averages() ? memory() : values_.weights;
  values_.first_moment = memory();
  values_.second_moment = memory();
}

Status StateSnapshot::take(const TrainingState& state) {
  const torch::NoGradGuard no_grad;
  reserve(state);
  const StateValues now = values_at_hand(state);
  const auto copy = [&](const torch::Tensor& from, const torch::Tensor& to) {
    return copy_canonical(*state.ranks, state.parameters, from, to);
  };
  DARKROOM_RETURN_IF_ERROR(copy(now.weights, values_.weights));
  if (state.ema.averages()) {
    DARKROOM_RETURN_IF_ERROR(copy(now.average, values_.average));
  }
  DARKROOM_RETURN_IF_ERROR(copy(now.first_moment, values_.first_moment));
  return copy(now.second_moment, values_.second_moment);
}

Result<int64_t> count_moments_files(const std::string& folder) {
  DARKROOM_ASSIGN_OR_RETURN(const RecordedCheckpoint checkpoint, read_checkpoint_record(local_files(), folder));
  return count_moments_files(checkpoint.digests);
}

Status hand_in_training_state(const TrainingState& state) { return write_state_share(state); }

Status take_training_state(TrainingState& state, int64_t num_files) {
  DARKROOM_RETURN_IF_ERROR(spread_moments(state, num_files, nullptr));
  return state.ema.averages() ? spread_average(state, nullptr) : Status::ok();
}

Status save_checkpoint(FileSystem& files, const std::string& checkpoints_folder, const CheckpointRecord& record, TrainingState& state) {
  const auto publication = begin_publication(files, checkpoints_folder, checkpoint_name(record.step));
  if (!publication.is_ok()) {
    tell_no_state_files(*state.ranks, publication.status());
    return publication.status();
  }
  DARKROOM_RETURN_IF_ERROR(write_contents(files, (*publication)->folder(), record, state));
  DARKROOM_ASSIGN_OR_RETURN(const auto outcome, (*publication)->publish());
  if (outcome == PublishOutcome::kAlreadyThere) {
    return Status::already_exists("another run wrote a checkpoint of this step meanwhile:",
                                  join_path(checkpoints_folder, checkpoint_name(record.step)));
  }
  return {};
}

Status restore_training_state(const std::string& folder, const CheckpointRecord& record, TrainingState& state) {
  DARKROOM_RETURN_IF_ERROR(restore_moments(folder, state));
  state.optimizer.set_num_updates(record.optimizer_updates);
  if (!state.ema.averages()) {
    return {};  // Decay 0 from here on: the average of before would take the place of the weights.
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto averages, SafetensorsFile::open(join_path(join_path(folder, kEmaFolder), kComponentWeightsFile)));
  return state.ranks->size() == 1 ? restore_whole_average(*averages, state) : spread_average(state, averages.get());
}

Result<std::optional<FoundCheckpoint>> find_newest_checkpoint(FileSystem& files, const std::string& checkpoints_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const auto places, list_checkpoints(files, checkpoints_folder));
  std::vector<CheckpointPlace> damaged;
  Status last_failure;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    auto record = read_twice(files, place->path);
    if (record.is_ok()) {
      for (const auto& bad : damaged) {
        DARKROOM_RETURN_IF_ERROR(set_aside(files, bad.path));
      }
      return std::optional(FoundCheckpoint{*place, *std::move(record)});
    }
    if (record.status().code() != StatusCode::kCorruptData) {
      return record.status();
    }
    log_warning("the checkpoint of step {} is damaged and is not used: {}", place->step, record.status().message());
    damaged.push_back(*place);
    last_failure = record.status();
  }
  if (!damaged.empty()) {
    return Status::corrupt_data("every checkpoint of the run is damaged; start afresh in another --output; the oldest one:",
                                last_failure.message());
  }
  return std::optional<FoundCheckpoint>();
}

std::vector<CheckpointPlace> superfluous_checkpoints(const std::vector<CheckpointPlace>& places, int64_t keep_last, int64_t keep_every) {
  std::vector<CheckpointPlace> superfluous;
  const auto num_old = static_cast<int64_t>(places.size()) - keep_last;
  for (int64_t i = 0; i < num_old; ++i) {
    const auto& place = places[static_cast<size_t>(i)];
    if (keep_every <= 0 || place.step % keep_every != 0) {
      superfluous.push_back(place);
    }
  }
  return superfluous;
}

Status prune_checkpoints(FileSystem& files, const std::string& checkpoints_folder, int64_t keep_last, int64_t keep_every) {
  DARKROOM_ASSIGN_OR_RETURN(const auto places, list_checkpoints(files, checkpoints_folder));
  Status first_failure;
  for (const auto& place : superfluous_checkpoints(places, keep_last, keep_every)) {
    const Status removed = remove_published_folder(files, checkpoints_folder, file_name(place.path));
    const bool is_gone = removed.is_ok() || removed.code() == StatusCode::kNotFound;  // Somebody else may have removed it.
    first_failure = is_gone || !first_failure.is_ok() ? first_failure : removed;
  }
  return first_failure;
}

}  // namespace darkroom
