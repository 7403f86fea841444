#pragma once

#include <functional>
#include <memory>
#include <string>

#include "darkroom/ingest/download_job.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/stream/memory_budget.h"
#include "darkroom/stream/pipeline.h"
#include "darkroom/tables/table_reader.h"
#include "download_row.h"

namespace darkroom {

/// Reads the items that a job hands out, in order and takes memory for each row before it hands it on. Thread safety: one thread.
class DownloadSource {
 public:
  /// What takes the rows, in order.
  using Consumer = std::function<Status(DownloadRow row)>;

  DownloadSource(JobRun& run, const DownloadOptions& options, MemoryBudget& rows, MemoryBudget& open_items)
      : run_(run), options_(options), rows_(rows), open_items_(open_items) {}

  /// Reads everything; `out` is the worker's way out, asked for the stop and told about waits. Errors: take_item's, open_table's,
  /// find_url_columns'; kCorruptData (fewer rows than were pinned); kCancelled.
  Status read_all(const Consumer& consume, Emitter<DownloadRow>& out);

 private:
  Status read_item(const std::shared_ptr<DownloadItem>& item, const Consumer& consume, Emitter<DownloadRow>& out);
  Status read_batch(const std::shared_ptr<DownloadItem>& item, const std::shared_ptr<arrow::RecordBatch>& batch, int64_t first_position,
                    const Consumer& consume, Emitter<DownloadRow>& out);

  JobRun& run_;
  const DownloadOptions& options_;
  MemoryBudget& rows_;
  MemoryBudget& open_items_;
  std::unique_ptr<TableReader> table_;  // Of the input that was read last.
};

}  // namespace darkroom
