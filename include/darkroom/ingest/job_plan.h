#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/ingest/job_identity.h"
#include "darkroom/ingest/job_inputs.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/ingest/part_record.h"
#include "darkroom/ingest/retry_codes.h"
#include "darkroom/ingest/selection.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "darkroom/tables/part_name.h"

namespace darkroom {

/// A part that is there.
struct CommittedPart {
  PartName name = {};
  int64_t size_bytes = 0;  ///< Of the file.
  std::string fingerprint = {};
  ItemTally tally = {};  ///< Without failed_rows.
  RetryRounds retried = {};
  std::string content_hash = {};

  /// Whether the rows of `work` were all worked through.
  bool covers(const WorkItem& work) const { return !name.considered || *name.considered >= work.num_rows; }
};

/// Rows of a part that are made anew although they did not fail.
struct RedoneItem {
  int64_t generation = 0;  ///< Of the part that they are in.
  int64_t num_rows = 0;
  std::string rows = {};  ///< pack_rows of their numbers within the item.
};
/// By item.
using RowsToRedo = std::map<int64_t, RedoneItem>;

/// What a job is asked for: who it is, what it reads and where it writes.
struct JobRequest {
  Location output = {};  ///< Folder of the dataset.
  JobIdentity identity = {};
  Store* input_store = nullptr;       ///< Of the files in `listed` that name no store of their own.
  std::vector<JobInput> listed = {};  ///< list_job_inputs', unless `list` gives it.
  /// Gives `listed` when it is needed. A run of single items (Selection::items) whose inputs are pinned looks for those items' own inputs
  /// at `roots` and needs no list, unless one of them is not found there as it was pinned.
  std::function<Result<std::vector<JobInput>>()> list = {};
  std::vector<InputRoot> roots = {};  ///< input_roots'; empty: the list is always needed.
  CheckColumns check_columns = {};
  Selection selection = {};
  RetryCodes retry = {};   ///< Where there are any: instead of making parts, redo the rows that failed with these.
  RowsToRedo redo = {};    ///< The same of these good rows. REQUIRES: not both.
  std::string owner = {};  ///< Of claims; empty: owner_of_this_process().
};

/// A part of which rows are redone.
struct BasePart {
  Location place = {};
  ItemTally kept = {};               ///< Of the rows that stay as they are.
  std::vector<int64_t> redone = {};  ///< The others: numbers within the item, ascending.
};

/// A job as it stands on disk: its pinned inputs, its items, the parts that are there, and how one more gets there.
///
/// The part is the record: first wins, whoever writes it. _job.json, _inputs.parquet and _summary.json are made from the parts' footers and
/// can be deleted. A commit costs the same however many inputs there are. Thread safety: any thread.
class JobPlan {
 public:
  /// Looks at inputs and output, and changes nothing: reads the end of every input once (of a pinned job's single items their own alone:
  /// JobRequest::list), the output's names once, and the footers of those parts that _summary.json does not vouch for, up to 64 files at a
  /// time.
  /// Errors: kFailedPrecondition (another job's folder, naming the fields that differ), kCorruptData (a damaged table, part, _job.json),
  /// kCancelled within the reads that are under way, check_columns' and the stores'.
  static Result<std::unique_ptr<JobPlan>> make(JobRequest request, const std::stop_token& stop);

  const Location& output() const { return output_; }
  const JobIdentity& identity() const { return identity_; }
  const std::string& job_hash() const { return job_hash_; }
  /// The pinned inputs; their paths are those of their stores.
  const std::vector<JobInput>& inputs() const { return inputs_; }
  /// Where the file of an item is read.
  Location input_place(const WorkItem& item) const { return place_of(input_store_, inputs_[item.input]); }
  /// Opens it. Errors: open_pinned_input's.
  Result<std::unique_ptr<TableReader>> open_input(const WorkItem& item) const {
    return open_pinned_input(input_store_, inputs_[item.input]);
  }

  /// Where rows are redone: the round that this run belongs to. All runs with the same codes work on one round until every part that has
  /// such rows was redone in it; the next run begins another.
  int64_t retry_round() const { return retry_round_; }

  /// Of the whole job.
  int64_t num_items() const;
  /// The whole item. REQUIRES: 0 <= number < num_items().
  WorkItem item(int64_t number) const {
    WorkItem work = find_item(inputs_, identity_.rows_per_file, number);
    work.container = identity_.container;
    return work;
  }
  /// Whether its inputs were pinned, or parts made, when the plan was made: then what the job is stays as it is.
  bool has_begun() const { return has_begun_; }
  /// Rows that this run's selection covers, those of them that were committed when the plan was made, and items to do.
  int64_t num_rows() const { return num_rows_; }
  int64_t num_rows_before() const { return num_rows_before_; }
  int64_t num_pending() const { return num_pending_; }

  /// Makes the folder ready to work in: clears what dead writers left, parts of the selected items too that later ones replaced, writes
  /// _job.json and _inputs.parquet where they are missing. Errors: kFailedPrecondition when another job was faster; kUnavailable when
  /// another process pinned another list at the same instant: run again; kCancelled.
  Status prepare(const std::stop_token& stop = {});

  /// What the pending items come to, as far as inputs, names and the parts that are there tell. Reads nothing.
  PendingWork pending_work() const;

  /// The first item with a number of at least `number` that is selected and has no part yet, as far as is known; where rows are redone,
  /// that has such rows and was not redone in this round. Nothing after the last.
  std::optional<WorkItem> next_pending(int64_t number) const;
  /// Of one item the same: nothing where it is not pending, or no item of the selection. Any number may be asked for.
  std::optional<WorkItem> pending_item(int64_t number) const;
  /// The numbers of all pending items.
  std::vector<int64_t> pending_items() const;
  /// Whether somebody has committed the item meanwhile, or a later generation of it; looks, and takes that in. Errors: as publish.
  Result<bool> is_committed_now(const WorkItem& item);
  /// The part before `item`'s generation, and which of its rows are redone. Errors: read_part_record's; kUnavailable where it is gone;
  /// kCorruptData naming a part that counts other rows than it lists. REQUIRES: a retried item of next_pending().
  Result<BasePart> find_base(const WorkItem& item) const;
  /// The footer that makes a shard this item's part: its record under kShardKey, then `more_footer`.
  KeyValues footer_of(const WorkItem& item, const ItemTally& tally, KeyValues more_footer = {}) const;
  /// Publishes an item's shard, begun under its part_name() and finished with footer_of(item, tally). When another writer was first, the
  /// part that is there counts (kAlreadyThere). Errors: the store's; kFailedPrecondition when what is there is another job's.
  Result<PublishOutcome> publish(const WorkItem& item, const ItemTally& tally, FinishedShard shard);
  /// Commits that found another writer's part there.
  int64_t num_lost_races() const;

  /// The parts that are known, by item.
  std::map<int64_t, CommittedPart> parts() const;
  int64_t num_parts() const;
  std::optional<CommittedPart> find_part(int64_t item) const;
  ItemTally total() const;
  /// Lists the output again, takes in what other processes committed, and moves aside what this run's own parts replaced. Errors: as make.
  Status refresh(const std::stop_token& stop);
  /// refresh(), then _summary.json: totals and one entry a part; again until nothing changed meanwhile, so that whoever is last writes all.
  Status write_summary(const std::stop_token& stop);

 private:
  JobPlan() = default;

  Status check_job_file() const;
  Status find_inputs(JobRequest& request, const std::vector<FileInfo>& parts, const std::stop_token& stop);
  Result<bool> take_own_inputs(const JobRequest& request, const PinnedList& pins, const std::stop_token& stop);
  Status take_all_inputs(JobRequest& request, const std::optional<PinnedList>& pins, const std::vector<FileInfo>& parts,
                         const std::stop_token& stop);
  Status rebuild_inputs(std::vector<FileInfo> parts, const std::stop_token& stop);
  Status take_known_generations(const std::map<int64_t, PartRecord>& parts, const std::stop_token& stop);
  Result<std::vector<JobInput>> read_longer_list() const;
  Status find_parts(std::vector<FileInfo> files, const std::vector<JobInput>& inputs, const std::stop_token& stop);
  Status count_rows();
  void find_round();
  bool makes_parts() const { return retry_.is_empty() && redo_.empty(); }
  int64_t rows_to_redo(const CommittedPart& part) const;
  std::optional<WorkItem> find_work(int64_t number) const;
  bool is_selected(int64_t number) const;
  std::optional<WorkItem> select(int64_t number) const;
  Result<CommittedPart> read_part(const std::vector<JobInput>& inputs, const PartName& name, int64_t size_bytes) const;
  Result<CommittedPart> check_record(const std::vector<JobInput>& inputs, const PartName& name, int64_t size_bytes,
                                     const PartRecord& record) const;
  template <typename Takes>
  std::vector<PartName> take_superseded(const Takes& takes);
  Status retire_leftovers(const std::stop_token& stop);
  Status retire_replaced(const std::stop_token& stop);
  Status try_to_retire(const PartName& name);
  Result<std::optional<CommittedPart>> find_later(const std::vector<JobInput>& inputs, PartName name) const;
  PartRecord record_of(const WorkItem& item, const ItemTally& tally) const;
  Status settle(const WorkItem& item, const PartRecord& record, PublishOutcome outcome, int64_t num_bytes, std::string content_hash);
  void take_in(CommittedPart part);

  Location output_;
  JobIdentity identity_;
  std::string job_hash_;
  Store* input_store_ = nullptr;  // Of inputs that name none.
  std::vector<JobInput> inputs_;
  Selection selection_;
  RetryCodes retry_;
  RowsToRedo redo_;
  std::string owner_;
  int64_t retry_round_ = 0;
  int64_t list_rows_ = 0;  // Of all inputs.
  int64_t num_rows_ = 0;
  int64_t num_rows_before_ = 0;
  int64_t num_pending_ = 0;
  int64_t num_pin_lists_ = 0;       // That were read.
  std::vector<JobInput> new_pins_;  // To be pinned by prepare().
  bool are_pins_new_ = false;
  bool has_begun_ = false;
  std::atomic<bool> has_warned_of_moves_ = false;

  mutable std::mutex mutex_;  // Guards all below.
  std::map<int64_t, CommittedPart> parts_;
  std::vector<FileInfo> superseded_;
  std::set<int64_t> replaced_;  // Items of which this run made a part.
  int64_t num_lost_races_ = 0;
};

/// Takes a part out of the way that readers leave for another of its item: one that --limit cut goes, a generation that was replaced moves
/// to _superseded/, where a run that began with it still finds it. What another job left there under its name goes. Fine when another
/// process was faster. Errors: the store's; read_part_record's.
Status retire_part(const Location& output, const PartName& name);

/// Reads _job.json: the identity in it. Errors: kNotFound; kCorruptData saying that the file may be deleted.
Result<nlohmann::json> read_job_file(const Location& output);

}  // namespace darkroom
