#pragma once

#include "darkroom/ingest/download_job.h"
#include "download_row.h"
#include "input_rows.h"

namespace darkroom {

/// Reads the items of a URL table, row by row. Thread safety: one thread.
class DownloadReader : public ItemReader<DownloadRow> {
 public:
  /// `where` may be null; all outlive this.
  DownloadReader(JobRun& run, const DownloadOptions& options, const WhereExpression* where, const ReadOptions& read)
      : run_(run), options_(options), rows_(where, read) {}

  /// Errors: InputRows', find_url_columns'; kCorruptData (fewer rows than were pinned); kCancelled.
  Status read(ItemIntake<DownloadRow>& intake) override;

 private:
  Status read_batch(const DownloadItem& item, const InputRows::Kept& kept, ItemIntake<DownloadRow>& intake);

  JobRun& run_;
  const DownloadOptions& options_;
  InputRows rows_;
};

}  // namespace darkroom
