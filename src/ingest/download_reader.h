#pragma once

#include <cstdint>
#include <vector>

#include "darkroom/ingest/download_job.h"
#include "darkroom/ingest/input_rows.h"
#include "download_row.h"
#include "download_rules.h"

namespace darkroom {

/// Reads the items of a URL table, row by row. Thread safety: one thread.
class DownloadReader : public ItemReader<DownloadRow> {
 public:
  /// All outlive this.
  DownloadReader(JobRun& run, const DownloadOptions& options, const DownloadRules& rules, const ReadOptions& read)
      : run_(run), options_(options), rules_(rules), rows_(rules.condition(), {}, read) {}

  /// Errors: InputRows', find_url_columns'; kCorruptData (fewer rows than were pinned); kCancelled.
  Status read(ItemIntake<DownloadRow>& intake) override;

 private:
  std::vector<int64_t> choose(const DownloadItem& item, const KeptRows& kept) const;
  Status read_batch(const DownloadItem& item, const KeptRows& kept, ItemIntake<DownloadRow>& intake);

  JobRun& run_;
  const DownloadOptions& options_;
  const DownloadRules& rules_;
  InputRows rows_;
};

}  // namespace darkroom
