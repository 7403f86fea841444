#include "remote_run.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <span>
#include <utility>

#include "darkroom/core/clock.h"
#include "darkroom/core/log.h"
#include "darkroom/core/shown_uri.h"
#include "darkroom/feed/stored_run.h"
#include "darkroom/files/claim.h"
#include "darkroom/files/paths.h"
#include "darkroom/train/run_files.h"

namespace darkroom {
namespace {

constexpr int64_t kRunClaim = 0;  // The one claim of a run folder: _claims/000000.
constexpr const char* kClaimPath = "_claims/000000";
// With a store that takes no checkpoint: of a run that goes on, of one that ends.
constexpr std::chrono::minutes kPatience{15};
constexpr std::chrono::minutes kLastPatience{60};
constexpr std::chrono::seconds kFirstWait{1};
constexpr std::chrono::seconds kLongestWait{60};
constexpr int64_t kSpareParts = 10;  // Of the size of a checkpoint: so much is free beside it where its room suffices for the next.
constexpr std::chrono::seconds kClaimPause{10};  // Between two looks at another's claim.
constexpr std::chrono::hours kLeftoverAge{1};    // What is older was left by a dead writer, whatever the clocks say.

// What is said of a copy is said of what it was made of.
std::string said_of(const std::string& uri, const std::string& copy, std::string message) {
  for (size_t at = message.find(copy); at != std::string::npos; at = message.find(copy, at + uri.size())) {
    message.replace(at, copy.size(), uri);
  }
  return message;
}

/// Whether a folder has a name that this program gives to a checkpoint of an earlier step. Other names are the user's.
bool is_checkpoint_before(const std::string& name, int64_t step) {
  constexpr std::string_view kPrefix = "step-";
  int64_t found = -1;
  if (name.starts_with(kPrefix)) {
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), found);
  }
  return found >= 0 && found < step && name == checkpoint_name(found);
}

Status held_by_another(const Location& folder) {
  return Status::failed_precondition(
      "another process is training in this run folder; wait for it (the claim of one that died ends within ten minutes) or take another "
      "--output:",
      folder.uri());
}

}  // namespace

RemoteRun::RemoteRun(Location folder, ScratchFolder spool, std::string owner, Clock& clock, std::stop_token stop)
    : folder_(std::move(folder)),
      checkpoints_(folder_ / kRunCheckpointsFolder),
      spool_(std::move(spool)),
      owner_(std::move(owner)),
      clock_(clock),
      stop_(std::move(stop)),
      claims_(folder_, owner_, system_clock()) {}

std::string RemoteRun::in_spool(const std::string& name) const { return join_path(spool(), name); }

std::string RemoteRun::checkpoint_uri(int64_t step) const { return (checkpoints_ / checkpoint_name(step)).uri(); }

Result<std::unique_ptr<RemoteRun>> RemoteRun::open(const Location& folder, Clock& clock, const std::stop_token& stop,
                                                   std::chrono::seconds patience) {
  DARKROOM_ASSIGN_OR_RETURN(ScratchFolder spool, ScratchFolder::make());
  std::unique_ptr<RemoteRun> run(new RemoteRun(folder, std::move(spool), make_claim_owner(), clock, stop));
  DARKROOM_RETURN_IF_ERROR(run->take_claim(patience));
  Store& store = *folder.store;
  const auto now = system_clock().wall();
  DARKROOM_RETURN_IF_ERROR(store.sweep(folder.path, kLeftoverAge, now).status());
  DARKROOM_RETURN_IF_ERROR(store.sweep_folders(run->checkpoints_.path, kLeftoverAge, now).status());
  DARKROOM_RETURN_IF_ERROR(run->remove_remains());
  DARKROOM_RETURN_IF_ERROR(local_files().create_folders(run->in_spool(kRunCheckpointsFolder)));
  for (const char* name : {kRunFactsFile, kRunGoodputFile}) {
    const Location file = folder / name;
    DARKROOM_ASSIGN_OR_RETURN(const bool is_there, file.exists());
    if (is_there) {
      DARKROOM_RETURN_IF_ERROR(copy_file_here(file, run->in_spool(name), {.stop = stop}));
    }
  }
  return run;
}

/// What an interrupted removal left: folders without a record that are older than the newest checkpoint.
Status RemoteRun::remove_remains() {
  DARKROOM_ASSIGN_OR_RETURN(const auto places, list_checkpoints(checkpoints_));
  if (places.empty()) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto entries, checkpoints_.store->list(checkpoints_.path));
  for (const FileInfo& entry : entries) {
    const bool is_older = is_checkpoint_before(file_name(entry.path), places.back().step);
    const bool is_whole = std::ranges::find(places, entry.path, &CheckpointPlace::path) != places.end();
    if (entry.is_folder && is_older && !is_whole) {
      DARKROOM_RETURN_IF_ERROR(checkpoints_.store->remove_tree(entry.path));
    }
  }
  return Status::ok();
}

Status RemoteRun::take_claim(std::chrono::seconds patience) {
  DARKROOM_ASSIGN_OR_RETURN(ClaimHolder holder, claims_.take(kRunClaim));
  const Clock::Instant last = clock_.now() + patience;
  if (holder != ClaimHolder::kOurs && patience.count() > 0) {
    log_info("another process holds {}; it may be the start that was lost, whose claim ends within ten minutes", folder_.uri());
  }
  while (holder != ClaimHolder::kOurs && clock_.now() < last) {
    if (!clock_.sleep_until(clock_.now() + kClaimPause, stop_)) {
      return Status::cancelled("stopped while another process held the run folder:", folder_.uri());
    }
    DARKROOM_ASSIGN_OR_RETURN(holder, claims_.take(kRunClaim));
  }
  return holder == ClaimHolder::kOurs ? Status::ok() : held_by_another(folder_);
}

/// A claim that is gone or expired is taken again, but another may have trained here and have ended meanwhile.
Status RemoteRun::check_claim(int64_t step) {
  constexpr const char* kTakenOver = "this run was thought dead, and its folder was taken over";
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<Claim> claim, read_claim(folder_ / kClaimPath));
  if (claim && claim->owner == owner_) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const ClaimHolder holder, claims_.take(kRunClaim));
  if (holder == ClaimHolder::kOthers) {
    return held_by_another(folder_).with_context(kTakenOver);
  }
  DARKROOM_ASSIGN_OR_RETURN(const int64_t newest, newest_step());
  DARKROOM_ASSIGN_OR_RETURN(const bool is_ours, newest <= newest_step_ || newest == step ? Result<bool>(true) : has_published(newest));
  if (is_ours) {  // Of an earlier try, or the same bits.
    return Status::ok();
  }
  claims_.release(kRunClaim);
  return Status::failed_precondition("another process has stored a newer checkpoint; --resume auto goes on from that one (checkpoint):",
                                     checkpoint_uri(newest))
      .with_context(kTakenOver);
}

Result<int64_t> RemoteRun::newest_step() const {
  DARKROOM_ASSIGN_OR_RETURN(const auto places, list_checkpoints(checkpoints_));
  return places.empty() ? -1 : places.back().step;
}

/// Where a checkpoint lies in the spool.
std::string RemoteRun::copy_of(int64_t step) const { return join_path(in_spool(kRunCheckpointsFolder), checkpoint_name(step)); }

/// Into the spool.
Status RemoteRun::copy_checkpoint(const CheckpointPlace& place) {
  const Location from{.store = checkpoints_.store, .path = place.path};
  log_info("fetching the checkpoint {}", from.uri());
  return copy_tree_here(from, copy_of(place.step), {.stop = stop_});
}

/// The same, once more where it came over damaged. kCorruptData: it is damaged, which is told, and no copy is left.
Result<CheckpointRecord> RemoteRun::fetch_checkpoint(const CheckpointPlace& place) {
  const std::string uri = checkpoint_uri(place.step), copy = copy_of(place.step);
  DARKROOM_RETURN_IF_ERROR(copy_checkpoint(place));
  auto record = read_checkpoint(local_files(), copy);
  if (record.status().code() == StatusCode::kCorruptData) {
    DARKROOM_RETURN_IF_ERROR(copy_checkpoint(place));
    record = read_checkpoint(local_files(), copy);
  }
  if (record.is_ok()) {
    return record;
  }
  if (record.status().code() != StatusCode::kCorruptData) {
    return record.status().with_context(uri);
  }
  const std::string failure = said_of(uri, copy, record.status().message());
  log_warning("the checkpoint of step {} is damaged and is not used: {}", place.step, failure);
  DARKROOM_RETURN_IF_ERROR(local_files().remove_tree(copy));
  return Status::corrupt_data(failure);
}

Result<std::optional<std::string>> RemoteRun::fetch_valid_record(int64_t step) {
  const CheckpointPlace place{.path = (checkpoints_ / checkpoint_name(step)).path, .step = step};
  const Status valid = fetch_checkpoint(place).status();
  if (valid.code() == StatusCode::kCorruptData) {
    DARKROOM_RETURN_IF_ERROR(set_aside(place));
    return std::optional<std::string>();
  }
  DARKROOM_RETURN_IF_ERROR(valid);
  DARKROOM_ASSIGN_OR_RETURN(std::string record, read_file(local_files(), join_path(copy_of(step), kCheckpointRecordFile)));
  DARKROOM_RETURN_IF_ERROR(local_files().remove_tree(copy_of(step)));
  return std::optional(std::move(record));
}

Result<std::optional<FoundCheckpoint>> RemoteRun::fetch_newest_checkpoint() {
  DARKROOM_ASSIGN_OR_RETURN(const auto places, list_checkpoints(checkpoints_));
  std::vector<CheckpointPlace> damaged;
  std::string last_failure;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    auto record = fetch_checkpoint(*place);
    if (record.is_ok()) {
      for (const auto& bad : damaged) {
        DARKROOM_RETURN_IF_ERROR(set_aside(bad));
      }
      return std::optional(FoundCheckpoint{{copy_of(place->step), place->step}, *std::move(record)});
    }
    if (record.status().code() != StatusCode::kCorruptData) {
      return record.status();
    }
    last_failure = record.status().message();
    damaged.push_back(*place);
  }
  if (!damaged.empty()) {
    return Status::corrupt_data("every checkpoint of the run is damaged; start afresh in another --output; the oldest one:", last_failure);
  }
  return std::optional<FoundCheckpoint>();
}

/// Its record first, so that what is half moved is no checkpoint.
Status RemoteRun::set_aside(const CheckpointPlace& place) {
  Store& store = *checkpoints_.store;
  const Location target = checkpoints_ / (std::string(kDamagedPrefix) + file_name(place.path));
  DARKROOM_RETURN_IF_ERROR(store.remove_tree(target.path));
  std::vector<std::string> names = {std::string(kCheckpointRecordFile)};
  const auto add = [&](std::span<const FileInfo> page) {
    for (const FileInfo& file : page) {
      if (std::string name = file.path.substr(place.path.size() + 1); name != kCheckpointRecordFile) {
        names.push_back(std::move(name));
      }
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(store.list_tree(place.path, {}, add));
  for (const std::string& name : names) {
    DARKROOM_RETURN_IF_ERROR(store.move_object(join_path(place.path, name), (target / name).path));
  }
  return Status::ok();
}

Status RemoteRun::fetch_metrics(int64_t step) {
  const auto none = [](const std::string&) { return false; };
  const Status fetched = fetch_run_files(folder_, spool(), step, none, stop_);
  return fetched.code() == StatusCode::kNotFound ? Status::ok() : fetched;
}

Status RemoteRun::begin(int64_t steps_done, const std::string& events_file) {
  events_file_ = events_file;
  const auto entries = folder_.store->list(folder_.path);
  DARKROOM_RETURN_IF_ERROR(entries.status().code() == StatusCode::kNotFound ? Status::ok() : entries.status());
  for (const FileInfo& entry : entries.is_ok() ? *entries : std::vector<FileInfo>()) {
    const std::string name = file_name(entry.path);
    const auto metrics_step = step_of_metrics_part(name);
    const auto events_step = step_of_events_part(name);
    // This start's event file takes the name of those that began at the same step or later.
    const bool is_repeated = metrics_step ? *metrics_step > steps_done : events_step && (*events_step > steps_done || name >= events_file);
    if (is_repeated) {
      DARKROOM_RETURN_IF_ERROR(folder_.store->remove(entry.path));
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo metrics, local_files().stat(in_spool(kRunMetricsFile)));
  metrics_bytes_ = metrics.size_bytes;
  DARKROOM_ASSIGN_OR_RETURN(newest_step_, newest_step());
  for (const char* name : {kRunRecipeFile, kRunIndexFile, kRunFactsFile}) {
    DARKROOM_RETURN_IF_ERROR(store_file(name));
  }
  return Status::ok();
}

Result<std::string> RemoteRun::read_index() const {
  constexpr int64_t kMostIndexBytes = int64_t{1} << 30;
  return folder_.store->read_small((folder_ / kRunIndexFile).path, kMostIndexBytes);
}

Status RemoteRun::store_file(const std::string& name) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(local_files(), in_spool(name)));
  return folder_.store->replace_small((folder_ / name).path, bytes);
}

void RemoteRun::store_folder(const std::string& name) {
  const auto entries = local_files().list_tree(in_spool(name));
  Status stored = entries.status();
  for (size_t i = 0; stored.is_ok() && i < entries->size(); ++i) {
    stored = store_file((*entries)[i].path.substr(spool().size() + 1));
  }
  if (!stored.is_ok()) {
    log_warning("{} is not stored yet and comes with the next checkpoint: {}", (folder_ / name).uri(), stored.message());
    unstored_folders_.push_back(name);
  }
}

Status RemoteRun::store_tail(const std::string& name, const std::string& part_name, int64_t end, int64_t& stored_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, local_files().open_input(in_spool(name)));
  end = std::min(end, file->size_bytes());
  if (stored_bytes >= end) {
    return Status::ok();
  }
  std::string bytes(static_cast<size_t>(end - stored_bytes), '\0');
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(stored_bytes, std::as_writable_bytes(std::span(bytes))));
  bytes.resize(num_read);
  DARKROOM_RETURN_IF_ERROR(folder_.store->replace_small((folder_ / part_name).path, bytes));
  stored_bytes += static_cast<int64_t>(num_read);
  return Status::ok();
}

// The lines up to a checkpoint are a part of their own: who goes on from it removes later ones.
Status RemoteRun::store_logs(int64_t step) {
  for (const Spooled& checkpoint : unstored_) {
    DARKROOM_RETURN_IF_ERROR(store_logs_of(checkpoint));
  }
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  return store_logs_of({.step = step, .metrics_bytes = kAll, .events_bytes = kAll});
}

Status RemoteRun::store_logs_of(const Spooled& checkpoint) {
  const int64_t step = checkpoint.step;
  DARKROOM_RETURN_IF_ERROR(check_claim(step));
  DARKROOM_RETURN_IF_ERROR(store_tail(kRunMetricsFile, metrics_part_name(step), checkpoint.metrics_bytes, metrics_bytes_));
  return store_tail(events_file_, events_part_name(events_file_, step), checkpoint.events_bytes, events_bytes_);
}

Status RemoteRun::keep_trying(int64_t step, AfterSaving after, const std::function<Status()>& store) {
  const Clock::Instant last = clock_.now() + (after == AfterSaving::kGoesOn ? kPatience : kLastPatience);
  Status stored = store();
  for (std::chrono::seconds wait = kFirstWait; stored.code() == StatusCode::kUnavailable && clock_.now() + wait <= last;
       wait = std::min(2 * wait, kLongestWait)) {
    log_warning("the checkpoint of step {} is not stored yet, the next try is in {} s: {}", step, wait.count(), stored.message());
    if (!clock_.sleep_until(clock_.now() + wait, stop_)) {
      break;
    }
    stored = check_claim(step);
    stored = stored.is_ok() ? store() : stored;
  }
  return stored;
}

Result<bool> RemoteRun::has_published(int64_t step) {
  const auto ours = records_.find(step);
  if (ours == records_.end()) {
    return false;
  }
  const auto there = checkpoints_.store->read_small((checkpoints_ / checkpoint_name(step) / kCheckpointRecordFile).path);
  if (!there.is_ok()) {
    return there.status().code() == StatusCode::kNotFound ? Result<bool>(false) : there.status();
  }
  return *there == ours->second;  // It holds the hashes of all the rest.
}

Status RemoteRun::publish_checkpoint(int64_t step) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_done, has_published(step));  // By an earlier try whose answer was lost.
  if (is_done) {
    return Status::ok();
  }
  const std::string name = checkpoint_name(step);
  const std::string local = join_path(in_spool(kRunCheckpointsFolder), name);
  DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome,
                            publish_tree_there(local, std::string(kCheckpointRecordFile), checkpoints_ / name));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_ours, outcome == PublishOutcome::kPublished ? Result<bool>(true) : has_published(step));
  return is_ours ? Status::ok()
                 : Status::already_exists("another checkpoint of this step is there already and stays as it is:", checkpoint_uri(step));
}

Status RemoteRun::mark_logs(int64_t step) {
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo metrics, local_files().stat(in_spool(kRunMetricsFile)));
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo events, local_files().stat(in_spool(events_file_)));
  marked_ = {.step = step, .metrics_bytes = metrics.size_bytes, .events_bytes = events.size_bytes};
  return {};
}

/// A new checkpoint of the spool. Earlier ones that would go as soon as both are stored go now.
Status RemoteRun::take_in(int64_t step, const Recipe::Checkpoints& keep) {
  if (unstored_.empty() || unstored_.back().step != step) {
    const std::string record = join_path(checkpoint_name(step), kCheckpointRecordFile);
    DARKROOM_ASSIGN_OR_RETURN(records_[step], read_file(local_files(), join_path(in_spool(kRunCheckpointsFolder), record)));
    DARKROOM_RETURN_IF_ERROR(marked_.step == step ? Status::ok() : mark_logs(step));
    unstored_.push_back(marked_);
  }
  std::vector<CheckpointPlace> places;
  for (const Spooled& checkpoint : unstored_) {
    places.push_back({.path = {}, .step = checkpoint.step});
  }
  for (const CheckpointPlace& place : superfluous_checkpoints(places, keep.keep_last, keep.keep_every)) {
    std::erase_if(unstored_, [&](const Spooled& checkpoint) { return checkpoint.step == place.step; });
  }
  return remove_stored_ones_here().status();
}

/// How many there were.
Result<int64_t> RemoteRun::remove_stored_ones_here() {
  DARKROOM_ASSIGN_OR_RETURN(const auto places, list_checkpoints(local_files(), in_spool(kRunCheckpointsFolder)));
  int64_t num_removed = 0;
  for (const CheckpointPlace& place : places) {
    if (std::ranges::find(unstored_, place.step, &Spooled::step) == unstored_.end()) {
      DARKROOM_RETURN_IF_ERROR(local_files().remove_tree(place.path));
      ++num_removed;
    }
  }
  return num_removed;
}

// darkroom-ray reads the sentence (python/darkroom_ray/rank.py).
void RemoteRun::note_stored(int64_t step) {
  newest_step_ = std::max(newest_step_, step);
  log_info("the checkpoint of step {} is stored: {}", step, shown_uri(checkpoint_uri(step)));
}

/// One try.
Status RemoteRun::store_oldest() {
  const Spooled oldest = unstored_.front();
  DARKROOM_RETURN_IF_ERROR(store_logs_of(oldest));
  const Status published = publish_checkpoint(oldest.step);
  if (published.code() == StatusCode::kAlreadyExists) {
    return Status::failed_precondition(published.message());
  }
  DARKROOM_RETURN_IF_ERROR(published);
  note_stored(oldest.step);
  unstored_.erase(unstored_.begin());
  return Status::ok();
}

Result<bool> RemoteRun::make_room(int64_t free_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(const int64_t num_removed, remove_stored_ones_here());
  if (num_removed > 0 || unstored_.empty()) {
    return num_removed > 0;
  }
  const int64_t step = unstored_.front().step;
  const Status stored = store_oldest();
  if (!stored.is_ok() && stored.code() != StatusCode::kUnavailable) {
    return stored;
  }
  if (!stored.is_ok()) {
    DARKROOM_ASSIGN_OR_RETURN(const auto files, local_files().list_tree(join_path(in_spool(kRunCheckpointsFolder), checkpoint_name(step))));
    int64_t size = 0;
    for (const FileInfo& file : files) {
      size += file.size_bytes;
    }
    // A disk that somebody else fills takes the room of this one, too, and then nothing is left of what was trained.
    if (unstored_.size() == 1 && free_bytes < size / kSpareParts) {
      log_warning(
          "the checkpoint of step {} was not stored; it is the only one and is not given up for the next one, for which {} has no "
          "room (free bytes: {})",
          step, spool(), free_bytes);
      return false;
    }
    log_warning("the checkpoint of step {} was not stored and is given up: {} has no room for the next one", step, spool());
    unstored_.erase(unstored_.begin());
  }
  DARKROOM_RETURN_IF_ERROR(remove_stored_ones_here().status());
  return true;
}

/// To where it outlives the spool.
Result<std::string> RemoteRun::move_from_spool(int64_t step) {
  const std::string name = checkpoint_name(step);
  std::string place = join_path(parent_folder(spool()), fmt::format("darkroom-{}-{}", name, owner_));
  DARKROOM_RETURN_IF_ERROR(local_files().rename_no_replace(join_path(in_spool(kRunCheckpointsFolder), name), place));
  return place;
}

void RemoteRun::keep_earlier_here(int64_t step) {
  const Result<std::string> place = move_from_spool(step);
  log_warning("the checkpoint of step {} was not stored either: {}", step,
              place.is_ok() ? "it is kept in " + *place : place.status().message());
}

bool RemoteRun::has_stored(int64_t step) const {
  return newest_step_ >= step && std::ranges::find(unstored_, step, &Spooled::step) == unstored_.end();
}

Result<std::string> RemoteRun::keep_checkpoint_here(int64_t step) {
  for (const Spooled& checkpoint : std::exchange(unstored_, {})) {
    if (checkpoint.step != step) {
      keep_earlier_here(checkpoint.step);
    }
  }
  return move_from_spool(step);
}

/// In the order of their steps: whoever goes on takes the newest. After a stop the newest first: it holds all the work, and whoever takes
/// the machine back leaves it seconds.
Status RemoteRun::store_unstored(AfterSaving after) {
  while (!unstored_.empty()) {
    const Spooled next = stop_.stop_requested() ? unstored_.back() : unstored_.front();
    const bool is_late = newest_step_ > next.step;  // The newest is stored, and all lines.
    const bool is_earlier = next.step != unstored_.back().step;
    for (size_t i = 0; !is_late && i < unstored_.size() && unstored_[i].step <= next.step; ++i) {
      DARKROOM_RETURN_IF_ERROR(keep_trying(next.step, after, [&] { return store_logs_of(unstored_[i]); }));
    }
    const Status published = keep_trying(next.step, after, [&] { return publish_checkpoint(next.step); });
    if (is_late && !published.is_ok()) {
      keep_earlier_here(next.step);
    } else if (published.code() == StatusCode::kAlreadyExists && is_earlier) {
      return Status::failed_precondition(published.message());
    } else {
      DARKROOM_RETURN_IF_ERROR(published);
      note_stored(next.step);
    }
    std::erase_if(unstored_, [&](const Spooled& one) { return one.step == next.step; });
    DARKROOM_RETURN_IF_ERROR(is_earlier && !is_late ? remove_stored_ones_here().status() : Status::ok());
  }
  return Status::ok();
}

Status RemoteRun::store_checkpoint(int64_t step, const Recipe::Checkpoints& keep, AfterSaving after) {
  DARKROOM_RETURN_IF_ERROR(take_in(step, keep));
  if (after == AfterSaving::kGoesOn && stop_.stop_requested()) {
    return Status::unavailable("the run is being stopped: the last checkpoint goes first, and this one after it, step:", step);
  }
  DARKROOM_RETURN_IF_ERROR(store_unstored(after));
  for (const char* name : {kRunFactsFile, kRunGoodputFile}) {
    DARKROOM_RETURN_IF_ERROR(keep_trying(step, after, [&] { return store_file(name); }));
  }
  records_.clear();
  DARKROOM_RETURN_IF_ERROR(local_files().remove_tree(in_spool(kRunCheckpointsFolder)));
  for (const std::string& name : std::exchange(unstored_folders_, {})) {
    store_folder(name);
  }
  if (const Status pruned = prune(keep); !pruned.is_ok()) {
    log_warning("checkpoints that need not be kept are there still: {}", pruned.message());
  }
  return Status::ok();
}

Status RemoteRun::prune(const Recipe::Checkpoints& keep) {
  DARKROOM_ASSIGN_OR_RETURN(const auto places, list_checkpoints(checkpoints_));
  for (const CheckpointPlace& place : superfluous_checkpoints(places, keep.keep_last, keep.keep_every)) {
    // Without its state.json the folder is no checkpoint any more: an interrupted removal leaves none that is half there.
    DARKROOM_RETURN_IF_ERROR(checkpoints_.store->remove(join_path(place.path, kCheckpointRecordFile)));
    DARKROOM_RETURN_IF_ERROR(checkpoints_.store->remove_tree(place.path));
  }
  return Status::ok();
}

}  // namespace darkroom
