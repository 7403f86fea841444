#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/files/store.h"
#include "darkroom/ingest/claims.h"
#include "darkroom/train/checkpoint.h"
#include "darkroom/train/recipe.h"

namespace darkroom {

/// What a run does when a checkpoint is stored.
enum class AfterSaving { kGoesOn, kEnds };

/// A run folder on a store that cannot append. The run works in a folder of this machine, the spool, as if that were its run folder; what
/// must outlive the process is stored from there: small files as they come, metrics, events and the checkpoint at each checkpoint, in that
/// order, state.json last. Of two processes the second is refused: the first holds a claim (files/claim.h). Thread safety: none.
class RemoteRun {
 public:
  /// Takes the run folder's claim, completes and sweeps what dead writers left, and makes the spool, with the facts of earlier starts.
  /// A claim of another process is waited for for `patience`: that of a start which was lost with its machine ends within kClaimLifetime.
  /// Errors: kFailedPrecondition (another process trains in this folder), kCancelled (a stop meanwhile), those of store and disk. `clock`
  /// outlives the run.
  static Result<std::unique_ptr<RemoteRun>> open(const Location& folder, Clock& clock, const std::stop_token& stop,
                                                 std::chrono::seconds patience = {});

  const std::string& spool() const { return spool_.path(); }
  /// "s3://.../checkpoints/step-00001000", for messages.
  std::string checkpoint_uri(int64_t step) const;

  /// The newest valid checkpoint, in the spool. Damaged newer ones are reported as warnings and renamed to `damaged-step-NNNNNNNN`.
  /// Errors: kCorruptData when there are some and all are damaged.
  Result<std::optional<FoundCheckpoint>> fetch_newest_checkpoint();
  /// state.json of the checkpoint of that step that is there, which is fetched for it and found to be whole; none where it is damaged,
  /// which is told and dealt with as above.
  Result<std::optional<std::string>> fetch_valid_record(int64_t step);
  /// The step of the newest checkpoint that is there; -1 without one.
  Result<int64_t> newest_step() const;
  /// index.json as it is stored. Errors: kNotFound; those of the store.
  Result<std::string> read_index() const;
  /// Lays the metrics up to `step` into the spool. To be called before these are opened.
  Status fetch_metrics(int64_t step);

  /// Once the run's files are open: removes the parts of steps that are about to be repeated and stores the small files of the spool.
  /// `events_file`: the name of this start's event file.
  Status begin(int64_t steps_done, const std::string& events_file);
  /// Stores a small file of the spool, by its name.
  Status store_file(const std::string& name);
  /// Stores the files of a folder of the spool as small ones, where that fails with a warning now and with the next checkpoint.
  void store_folder(const std::string& name);
  /// Stores the metrics and events that were added since they were last stored. REQUIRES: they are synced.
  /// Errors: kFailedPrecondition (another process took the run folder over), those of the store.
  Status store_logs(int64_t step);
  /// The logs as they are now are those up to the checkpoint of this step, though more is logged before it is stored.
  Status mark_logs(int64_t step);
  /// store_logs, then publishes the spool's checkpoint and removes it there, then those that need not be kept (a failure of that is a
  /// warning). What is kUnavailable is tried again for a quarter of an hour, of a run that ends for an hour, or until a stop; then the
  /// spool keeps the checkpoint, and the next call stores it before its own, unless `keep` would have it removed at once. After a stop the
  /// newest goes first, and an earlier one that the store does not take then is kept here, with a warning.
  /// Errors: kAlreadyExists (another checkpoint of this step is there), kFailedPrecondition (of an earlier one), store_logs's.
  Status store_checkpoint(int64_t step, const Recipe::Checkpoints& keep, AfterSaving after = AfterSaving::kEnds);
  /// For a disk that is full: removes checkpoints from the spool that are stored; where there is none, tries once to store the oldest, and
  /// gives it up with a warning. The only one is given up only where `free_bytes` beside it let hope that its room holds the next one.
  /// False: nothing is left that may be removed. Errors: those of store_checkpoint but kUnavailable.
  Result<bool> make_room(int64_t free_bytes);
  /// Whether the store has this checkpoint of ours, or a later one.
  bool has_stored(int64_t step) const;
  /// Of one that the store did not take: moves it from the spool to where it outlives this process, and gives that path. Earlier ones go
  /// there, too; a warning names them.
  Result<std::string> keep_checkpoint_here(int64_t step);

 private:
  RemoteRun(Location folder, ScratchFolder spool, std::string owner, Clock& clock, std::stop_token stop);
  Status take_claim(std::chrono::seconds patience);
  Status remove_remains();
  Status check_claim(int64_t step);
  std::string copy_of(int64_t step) const;
  Status copy_checkpoint(const CheckpointPlace& place);
  Result<CheckpointRecord> fetch_checkpoint(const CheckpointPlace& place);
  Status set_aside(const CheckpointPlace& place);
  Status keep_trying(int64_t step, AfterSaving after, const std::function<Status()>& store);
  struct Spooled;
  Status take_in(int64_t step, const Recipe::Checkpoints& keep);
  Result<int64_t> remove_stored_ones_here();
  Status store_unstored(AfterSaving after);
  void note_stored(int64_t step);
  Status store_oldest();
  void keep_earlier_here(int64_t step);
  Status store_logs_of(const Spooled& checkpoint);
  Result<std::string> move_from_spool(int64_t step);
  Status publish_checkpoint(int64_t step);
  Result<bool> has_published(int64_t step);
  Status prune(const Recipe::Checkpoints& keep);
  Status store_tail(const std::string& name, const std::string& part_name, int64_t end, int64_t& stored_bytes);
  std::string in_spool(const std::string& name) const;

  const Location folder_;
  const Location checkpoints_;
  const ScratchFolder spool_;
  const std::string owner_;
  Clock& clock_;
  const std::stop_token stop_;  // Of what is fetched before the run begins, and of waiting for the store; what it saves goes on.
  ItemClaims claims_;
  std::string events_file_;
  std::vector<std::string> unstored_folders_;
  /// A checkpoint that the spool has and the store has not, and how long the logs were with it.
  struct Spooled {
    int64_t step = 0;
    int64_t metrics_bytes = 0;
    int64_t events_bytes = 0;
  };
  Spooled marked_{.step = -1};
  std::vector<Spooled> unstored_;           // By step.
  std::map<int64_t, std::string> records_;  // state.json of those that may be stored without our having heard of it, by step.
  int64_t newest_step_ = -1;                // The newest checkpoint that this run found there or has stored.
  int64_t metrics_bytes_ = 0;               // That are stored.
  int64_t events_bytes_ = 0;
};

}  // namespace darkroom
