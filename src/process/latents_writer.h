#pragma once

#include <arrow/type.h>

#include <cstdint>
#include <memory>

#include "darkroom/ingest/job_run.h"
#include "darkroom/process/latents_layout.h"
#include "darkroom/process/process_batch.h"
#include "darkroom/tables/paged_shard_writer.h"

namespace darkroom {

/// Rows of a row group, so that a block of training is one read.
inline constexpr int64_t kLatentsGroupRows = 256;

/// The Parquet shard of one item of a latents dataset. Its tensors go to the file from where the encoder put them, or, in forms that Arrow
/// writes, by one copy. Memory: the rows of a row group, once or twice.
class LatentsWriter : public ItemWriter<ProcessBatch> {
 public:
  /// `run` and `layout` outlive the writer. Errors: the store's.
  static Result<std::unique_ptr<LatentsWriter>> open(JobRun& run, const WorkItem& work, const LatentsLayout& layout);

  /// Errors: PagedShardWriter's.
  Status add(int64_t position, ProcessBatch batch) override;
  Result<std::unique_ptr<FinishedItem>> finish() override;

 private:
  LatentsWriter(JobRun& run, const WorkItem& work, const LatentsLayout& layout)
      : run_(run), work_(work), layout_(layout), schema_(layout.schema()) {}

  Status write_rows(const ProcessBatch& batch);

  JobRun& run_;
  const WorkItem work_;
  const LatentsLayout& layout_;
  const std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<PagedShardWriter> shard_;
  ItemTally tally_;
};

}  // namespace darkroom
