#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/row_error.h"
#include "darkroom/ingest/claims.h"
#include "darkroom/ingest/item_orders.h"
#include "darkroom/ingest/item_pipeline.h"
#include "darkroom/ingest/job_plan.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/stores/stores.h"
#include "darkroom/stream/memory_budget.h"
#include "darkroom/stream/progress.h"
#include "darkroom/tables/paged_shard_writer.h"

namespace darkroom {

/// How one --memory budget is shared out among the parts of an item pipeline.
struct ItemMemory {
  size_t total_bytes = 0;
  size_t intake_bytes = 0;       ///< An eighth: rows between their reader and their writer, without the bodies.
  size_t body_bytes = 0;         ///< Half: bodies that arrive and bodies that wait.
  size_t work_bytes = 0;         ///< An eighth: what the middle takes besides (pictures that are decoded).
  size_t max_started_items = 1;  ///< A quarter: items with a writer.
};
/// `memory_bytes`: 0 is a quarter of the machine's. `writer_bytes`: what one item's writer holds.
ItemMemory plan_memory(int64_t memory_bytes, size_t writer_bytes);
/// What the readers of a job ask for before it is wanted (ReadOptions::read_ahead_bytes).
struct ReadAheadShare {
  int64_t reader_bytes = 0;
  size_t total_bytes = 0;  ///< Of all readers, each byte twice: a store holds an answer before it hands it over.
};
/// A quarter at most of `row_bytes`; nothing where all inputs are files of this machine.
ReadAheadShare plan_read_ahead(const JobPlan& plan, size_t row_bytes, int num_readers);
/// What an object on its way into a place holds besides: the parts of an upload, or nothing.
size_t upload_bytes(const Location& output);

/// An item of a job that is being worked on. A job derives its own where its reader, middle and writer share more.
class JobItem : public ItemInWork {
 public:
  explicit JobItem(WorkItem item) : work(std::move(item)) {}
  SpanAttributes describe() const override;

  const WorkItem work;
};

/// What a writer made of an item: its shard, finished with JobPlan::footer_of the tally.
class FinishedPart : public FinishedItem {
 public:
  FinishedPart(FinishedShard written, ItemTally counts) : shard(std::move(written)), tally(std::move(counts)) {}
  SpanAttributes describe() const override;

  FinishedShard shard;
  ItemTally tally;
};

/// What one start of a job has at hand, besides the plan.
struct RunTools {
  Clock* clock = nullptr;
  std::string owner = {};                                                   ///< Of its claims.
  std::function<std::shared_ptr<JobItem>(const WorkItem&)> make_item = {};  ///< Makes next()'s; null: plain ones.
  ItemOrders* orders = nullptr;  ///< Who says which items are next; null: all that are pending, one after the other.
  StoreSet* stores = nullptr;    ///< Of the job; given up when it fails. Null: they go on.
};

/// A job while it runs: hands out its items, commits them, and counts. Thread safety: any thread.
class JobRun : public ItemSource {
 public:
  /// REQUIRES: what `tools` point to outlives the run.
  JobRun(std::unique_ptr<JobPlan> plan, RunTools tools);

  JobPlan& plan() { return *plan_; }
  const JobPlan& plan() const { return *plan_; }
  /// Folder of the dataset.
  const Location& output() const { return plan_->output(); }
  /// Whether there are items to take, as far as is known.
  bool has_work() const { return tools_.orders != nullptr || plan_->num_pending() > 0; }
  const JobInput& input_of(const WorkItem& item) const { return plan_->inputs()[item.input]; }

  /// The next item to do: one that has no part and that no other process works on. When others work on all that are left, waits until they
  /// have committed them or their claims have expired. An item that cannot be claimed is ours, said once. Nothing when all is done. Where
  /// items are ordered, the next that is ordered and can be done; the others are answered.
  /// Errors: the store's; kCancelled.
  Result<std::optional<WorkItem>> take_item(const std::stop_token& stop);

  /// take_item() for a pipeline: a JobItem of make_item's.
  Result<std::shared_ptr<ItemInWork>> next(std::stop_token stop) override;
  /// Publishes the item's FinishedPart (JobPlan::publish) and gives its claim back. REQUIRES: a JobItem of next(), a FinishedPart.
  Status commit(ItemInWork& item, std::unique_ptr<FinishedItem> finished) override;

  /// As soon as the job has failed: gives its stores up (StoreSet::give_up), so that neither those at work nor what takes back claims and
  /// uploads wait for a store that cannot be reached.
  void give_up();
  /// The same where `status` is a failure, and no stop, which the stores have themselves. Returns it.
  Status ended(Status status);

  /// Counts finished rows for the progress line.
  void count_row(const RowError* error);
  void count_rows(int64_t num_rows, const RowsByError& failed);
  /// Counts rows that a condition drops before a stage sees them: done, and none that fail.
  void count_filtered(int64_t num_rows);
  void count_bytes(int64_t num_bytes);

  ProgressState progress() const;
  /// Sets the totals of the whole job and the counts of this run; what only a verb knows (retries, stages) stays.
  void fill(StageSummary& summary) const;

 private:
  Result<std::optional<WorkItem>> try_item(const WorkItem& item);
  std::optional<WorkItem> work_left(const WorkItem& item) const;
  ClaimHolder try_claim(int64_t item);
  Result<std::optional<WorkItem>> take_unclaimed();
  Result<std::optional<WorkItem>> take_from_others();
  Result<std::optional<WorkItem>> take_ordered(const std::stop_token& stop);
  Result<std::optional<WorkItem>> try_ordered(int64_t number);
  Status answer_settled(int64_t number);

  const std::unique_ptr<JobPlan> plan_;
  const RunTools tools_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  ItemClaims claims_;

  std::mutex taking_;  // Held while an item is awaited, so that items are handed out in order; guards the four below.
  int64_t next_item_ = 0;
  std::deque<WorkItem> with_others_;
  bool has_warned_of_claims_ = false;
  bool is_taking_orders_ = false;

  mutable std::mutex mutex_;  // Guards all below.
  int64_t rows_done_ = 0;
  int64_t rows_filtered_ = 0;  // Of rows_done_.
  int64_t rows_of_others_ = 0;
  int64_t bytes_done_ = 0;
  RowsByError errors_;
  std::set<int64_t> ordered_;  // That were taken and not committed yet.
};

/// Rows of the job, and those that failed by their code (docs/metrics.md), read at each scrape. `run` outlives it.
MetricsRegistry::Collection collect_job_metrics(MetricsRegistry& metrics, const JobRun& run);

/// What each stage of the pipeline did, for --verbose.
void log_stages(const std::string& name, const StageSummary& summary);

/// A failure with what is safe and how to go on; ok stays ok.
Status with_resume_advice(const Status& status, const std::string& output);

}  // namespace darkroom
