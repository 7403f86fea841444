#pragma once

#include <arrow/builder.h>

#include <memory>
#include <vector>

#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/value_copier.h"
#include "darkroom/stream/reorder_buffer.h"
#include "darkroom/tables/shard_writer.h"
#include "download_row.h"

namespace darkroom {

/// The shard of one item of an image dataset: takes rows in any order, writes them in input order, commits itself with the last one.
/// Thread safety: one thread.
class DownloadShard {
 public:
  static Result<std::unique_ptr<DownloadShard>> open(JobRun& run, std::shared_ptr<DownloadItem> item, bool keep_failed);

  /// Errors: those of ShardWriter. REQUIRES: a row of this item.
  Status add(DownloadRow row);
  bool is_committed() const { return is_committed_; }

 private:
  DownloadShard(JobRun& run, std::shared_ptr<DownloadItem> item, bool keep_failed)
      : run_(run), item_(std::move(item)), keep_failed_(keep_failed) {}

  Status open_columns();
  Status write_row(const DownloadRow& row);
  Status append_own_columns(const DownloadRow& row);
  Status flush();

  JobRun& run_;
  std::shared_ptr<DownloadItem> item_;  // Shared with the rows that are still under way.
  const bool keep_failed_;
  ReorderBuffer<DownloadRow> reorder_;
  ItemTally tally_;
  bool is_committed_ = false;

  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<ShardWriter> writer_;
  arrow::StringBuilder keys_, urls_, captions_, mimes_, errors_;
  arrow::BinaryBuilder images_;
  arrow::Int32Builder widths_, heights_;
  std::vector<ValueCopier> metadata_;
  int64_t pending_rows_ = 0;  // In the builders, like pending_bytes_.
  int64_t pending_bytes_ = 0;
};

}  // namespace darkroom
