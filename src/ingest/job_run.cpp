#include "darkroom/ingest/job_run.h"

#include <arrow/memory_pool.h>
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "darkroom/core/verbosity.h"
#include "job_json.h"

namespace darkroom {
namespace {

/// Gives what a finished item held back to the system: otherwise the allocators keep the peaks of several items at once.
void release_freed_memory() {
  arrow::default_memory_pool()->ReleaseUnused();
  malloc_trim(0);
}

}  // namespace

MemoryPlan plan_memory(int64_t memory_bytes) {
  MemoryPlan plan;
  plan.total_bytes = memory_bytes > 0 ? static_cast<size_t>(memory_bytes) : default_memory_budget_bytes();
  const auto shard_bytes = static_cast<size_t>(2 * ShardOptions().row_group_bytes);
  plan.max_open_items = std::clamp<int64_t>(static_cast<int64_t>(plan.total_bytes / 2 / shard_bytes), 1, kMaxOpenItems);
  plan.row_bytes = plan.total_bytes / 4;
  return plan;
}

JobRun::JobRun(FileSystem& files, std::string output, JobRecord record)
    : files_(files), output_(std::move(output)), record_(std::move(record)), fingerprint_(record_.fingerprint()) {}

Result<std::unique_ptr<JobRun>> JobRun::open(FileSystem& files, std::string output, JobRecord record, int64_t limit) {
  std::unique_ptr<JobRun> run(new JobRun(files, std::move(output), std::move(record)));
  DARKROOM_ASSIGN_OR_RETURN(run->parts_, find_parts(files, run->output_, run->record_));
  for (const WorkItem& item : run->record_.items(limit)) {
    const auto part = run->parts_.find(item.number);
    run->num_rows_ += item.num_rows;
    if (part != run->parts_.end() && part->second.tally.rows_in >= item.num_rows) {
      run->num_rows_before_ += item.num_rows;
    } else {
      run->pending_.push_back(item);
    }
  }
  return run;
}

void JobRun::count_row(const RowError* error) {
  std::lock_guard lock(mutex_);
  ++rows_done_;
  if (error != nullptr) {
    ++errors_[error->name()];
  }
}

void JobRun::count_rows(int64_t num_rows, const RowsByError& failed) {
  std::lock_guard lock(mutex_);
  rows_done_ += num_rows;
  for (const auto& [code, count] : failed) {
    errors_[code] += count;
  }
}

void JobRun::count_bytes(int64_t num_bytes) {
  std::lock_guard lock(mutex_);
  bytes_done_ += num_bytes;
}

Status JobRun::commit(const WorkItem& item, const ItemTally& tally, ShardWriter& shard, KeyValues more_footer) {
  // Read anew: another process may have put a whole part there since this run began.
  const auto is_cut_short = [&]() -> Result<bool> {
    DARKROOM_ASSIGN_OR_RETURN(const CommittedPart there, read_part(files_, output_, item.number, record_));
    return there.tally.rows_in < tally.rows_in;
  };
  KeyValues footer = {{kShardKey, shard_footer(record_, fingerprint_, item, tally)}};
  footer.insert(footer.end(), more_footer.begin(), more_footer.end());
  DARKROOM_ASSIGN_OR_RETURN(const ShardRecord written, shard.finish(std::move(footer), is_cut_short));
  CommittedPart part{.path = written.path, .tally = tally, .content_hash = written.content_hash};
  if (written.outcome == PublishOutcome::kAlreadyThere) {
    DARKROOM_ASSIGN_OR_RETURN(part, read_part(files_, output_, item.number, record_));
  }
  release_freed_memory();
  std::lock_guard lock(mutex_);
  parts_.insert_or_assign(item.number, std::move(part));
  return {};
}

ProgressState JobRun::progress() const {
  std::lock_guard lock(mutex_);
  return {.rows_done = num_rows_before_ + rows_done_,
          .rows_total = num_rows_,
          .rows_before = num_rows_before_,
          .num_bytes = bytes_done_,
          .queue_depth = 0,
          .rows_by_error = errors_};
}

StageSummary JobRun::summary() const {
  std::lock_guard lock(mutex_);
  StageSummary summary;
  ItemTally total;
  for (const auto& [number, part] : parts_) {
    total.add(part.tally);
  }
  summary.rows_in = total.rows_in;
  summary.rows_out = total.rows_out;
  summary.rows_by_error = total.rows_by_error;
  summary.num_invalid_captions = total.num_invalid_captions;
  summary.num_unported_captions = total.num_unported_captions;
  summary.num_parts = static_cast<int64_t>(parts_.size());
  summary.rows_this_run = rows_done_;
  summary.bytes = bytes_done_;
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return summary;
}

Status JobRun::write_summary() const {
  std::lock_guard lock(mutex_);
  return write_job_summary(files_, output_, record_, parts_);
}

void log_stages(const std::string& name, const StageSummary& summary) {
  for (const StageSnapshot& stage : summary.stages) {
    log_detail("{}: stage {}: {} workers, {} rows, {:.1f} MB, {:.1f} s busy", name, stage.name, stage.num_workers, stage.num_rows,
               static_cast<double>(stage.num_bytes) * 1e-6, stage.busy_seconds);
  }
}

Status with_resume_advice(const Status& status, const std::string& output) {
  if (status.is_ok()) {
    return status;
  }
  return Status::make(status.code(),
                      fmt::format("{}; what was committed is safe: {}run the same command again to go on (output folder):",
                                  status.message(), status.code() == StatusCode::kCancelled ? "" : "put it right and "),
                      output);
}

}  // namespace darkroom
