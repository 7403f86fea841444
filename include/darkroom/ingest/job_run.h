#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "darkroom/core/row_error.h"
#include "darkroom/ingest/job_record.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/io/shard_writer.h"
#include "darkroom/stream/memory_budget.h"
#include "darkroom/stream/progress.h"

namespace darkroom {

/// Rows in flight may fill so many items at once; each has an open shard.
inline constexpr int64_t kMaxOpenItems = 4;

/// How one --memory budget is shared out.
struct MemoryPlan {
  size_t total_bytes = 0;
  size_t row_bytes = 0;        ///< For rows between the door and their shard.
  int64_t max_open_items = 1;  ///< Each open shard may buffer twice a row group.
};
MemoryPlan plan_memory(int64_t memory_bytes);

/// A job while it runs: what was committed before, what is to be done, and the counts. Thread safety: any thread.
class JobRun {
 public:
  /// Looks at the output folder; changes nothing. Errors: find_parts'.
  static Result<std::unique_ptr<JobRun>> open(FileSystem& files, std::string output, JobRecord record, int64_t limit);

  FileSystem& files() const { return files_; }
  const std::string& output() const { return output_; }
  const JobRecord& record() const { return record_; }
  const std::string& fingerprint() const { return fingerprint_; }
  /// Items without a part that covers them, in order.
  const std::vector<WorkItem>& pending() const { return pending_; }
  /// Rows that this run would cover and those of them that are committed already.
  int64_t num_rows() const { return num_rows_; }
  int64_t num_rows_before() const { return num_rows_before_; }

  /// Counts finished rows for the progress line.
  void count_row(const RowError* error);
  void count_rows(int64_t num_rows, const RowsByError& failed);
  void count_bytes(int64_t num_bytes);
  /// Commits an item's shard: writes the footer (and `more_footer`), publishes, counts. A shorter part that an earlier --limit left is
  /// replaced, in one step once the longer one is durable; any other part that is there stays.
  Status commit(const WorkItem& item, const ItemTally& tally, ShardWriter& shard, KeyValues more_footer = {});

  ProgressState progress() const;
  /// Totals of the whole job and the counts of this run.
  StageSummary summary() const;
  /// Writes _summary.json.
  Status write_summary() const;

 private:
  JobRun(FileSystem& files, std::string output, JobRecord record);

  FileSystem& files_;
  const std::string output_;
  const JobRecord record_;
  const std::string fingerprint_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<WorkItem> pending_;
  int64_t num_rows_ = 0;
  int64_t num_rows_before_ = 0;

  mutable std::mutex mutex_;
  std::map<int64_t, CommittedPart> parts_;  // Guarded by mutex_, like all below.
  int64_t rows_done_ = 0;
  int64_t bytes_done_ = 0;
  RowsByError errors_;
};

/// What each stage of the pipeline did, for --verbose.
void log_stages(const std::string& name, const StageSummary& summary);

/// A failure with what is safe and how to go on; ok stays ok.
Status with_resume_advice(const Status& status, const std::string& output);

}  // namespace darkroom
