#pragma once

#include <memory>
#include <string>
#include <vector>

#include "darkroom/ingest/value_copier.h"
#include "darkroom/tables/tar_shard_writer.h"
#include "download_row.h"

namespace darkroom {

/// The tar of one item of an image dataset as img2dataset lays it out: KEY.jpg, KEY.json and KEY.txt a row, failed rows left out
/// (docs/formats/dialects.md). Pictures go to the object as they come. Thread safety: one thread at a time.
class WebdatasetWriter : public ItemWriter<DownloadRow> {
 public:
  /// Errors: ValueCopier's, the store's. `run` outlives this.
  static Result<std::unique_ptr<ItemWriter<DownloadRow>>> open(JobRun& run, std::shared_ptr<DownloadItem> item);

  Status add(int64_t position, DownloadRow row) override;
  Result<std::unique_ptr<FinishedItem>> finish() override;

 private:
  WebdatasetWriter(JobRun& run, std::shared_ptr<DownloadItem> item) : run_(run), item_(std::move(item)) {}

  Status open_columns();
  void name_hex_fields();
  Result<std::string> describe(const DownloadRow& row, const std::string& key);

  JobRun& run_;
  const std::shared_ptr<DownloadItem> item_;  // Shared with the pipeline.
  ItemTally tally_;
  std::vector<std::string> names_;      // Of the metadata, in the json.
  std::vector<std::string> hex_names_;  // Of their bytes, where these are no UTF-8.
  std::vector<ValueCopier> metadata_;
  std::unique_ptr<TarShardWriter> shard_;
};

}  // namespace darkroom
