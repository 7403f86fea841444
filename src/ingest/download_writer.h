#pragma once

#include <arrow/builder.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base_rows.h"
#include "darkroom/ingest/value_copier.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "download_row.h"

namespace darkroom {

/// The shard of one item of an image dataset, of format version 2: pictures go to it page by page, the other columns a few rows at a time.
/// Of a retried item the rows that stay are copied from its base, between those that come.
/// Memory: up to 2 MiB of pictures and a row, what PagedShardWriter holds, and of a retried item what BaseRows holds. Thread safety: one
/// thread at a time.
class DownloadWriter : public ItemWriter<DownloadRow> {
 public:
  /// Errors: ValueCopier's, the store's, BaseRows'. `run` outlives this.
  static Result<std::unique_ptr<ItemWriter<DownloadRow>>> open(JobRun& run, std::shared_ptr<DownloadItem> item, bool keep_failed);

  Status add(int64_t position, DownloadRow row) override;
  Result<std::unique_ptr<FinishedItem>> finish() override;

 private:
  DownloadWriter(JobRun& run, std::shared_ptr<DownloadItem> item, bool keep_failed)
      : run_(run), item_(std::move(item)), keep_failed_(keep_failed) {}

  Status open_columns();
  Status open_base();
  Status append_own_columns(const DownloadRow& row);
  Status flush();
  Status write(const arrow::RecordBatch& others, std::span<const BorrowedValue> images);
  Status copy_before(int64_t position);
  Status copy(std::shared_ptr<arrow::RecordBatch> rows);
  Status end_base();

  JobRun& run_;
  const std::shared_ptr<DownloadItem> item_;  // Shared with the pipeline.
  const bool keep_failed_;
  ItemTally tally_;

  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::Schema> batch_schema_;  // Without the image.
  arrow::StringBuilder keys_, urls_, captions_, mimes_, errors_;
  arrow::Int32Builder widths_, heights_;
  std::vector<ValueCopier> metadata_;
  /// What a row's picture lies in: its bytes, or the rows of the base; neither where it is null.
  struct HeldImage {
    std::optional<std::string> bytes = {};
    std::shared_ptr<arrow::RecordBatch> base = {};  // Shared by its rows.
  };
  std::deque<HeldImage> images_;  // From row first_image_ of the shard on; the writer borrows them.
  int64_t first_image_ = 0;
  size_t pending_rows_ = 0;  // The last ones: in the builders, like pending_bytes_.
  size_t pending_bytes_ = 0;
  std::unique_ptr<BaseRows> base_;            // Of a retried item.
  std::unique_ptr<PagedShardWriter> writer_;  // Last: it borrows images_.
};

}  // namespace darkroom
