#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "darkroom/ingest/download_job.h"
#include "darkroom/ingest/input_rows.h"
#include "download_row.h"
#include "download_rules.h"

namespace darkroom {

/// Rows of text tables that are none: a line that was cut, has another number of fields than the first one, or is no JSON object.
struct MalformedRows {
  int64_t count = 0;
  std::string first_table = {};
};

/// Reads the items of a URL table, row by row. Thread safety: one thread.
class DownloadReader : public ItemReader<DownloadRow> {
 public:
  /// All outlive this.
  DownloadReader(JobRun& run, const DownloadOptions& options, const DownloadRules& rules, const ReadOptions& read, MalformedRows& malformed)
      : run_(run), options_(options), rules_(rules), rows_(rules.condition(), {}, read), malformed_(malformed) {}

  /// Errors: InputRows', find_url_columns'; kCorruptData (fewer rows than were pinned); kCancelled.
  Status read(ItemIntake<DownloadRow>& intake) override;

 private:
  std::vector<int64_t> choose(const DownloadItem& item, const KeptRows& kept) const;
  /// Those of an item's rows; `num_before` were found before it.
  void count_malformed(const std::string& table, int64_t num_before);
  Status read_batch(const DownloadItem& item, const KeptRows& kept, ItemIntake<DownloadRow>& intake);

  JobRun& run_;
  const DownloadOptions& options_;
  const DownloadRules& rules_;
  InputRows rows_;
  MalformedRows& malformed_;
};

}  // namespace darkroom
