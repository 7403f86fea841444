#pragma once

#include <memory>
#include <stop_token>
#include <vector>

#include "darkroom/files/scratch.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/process/latents_layout.h"
#include "darkroom/process/process_batch.h"
#include "darkroom/tables/mds_writer.h"

namespace darkroom {

/// The columns of an MDS shard of latents. Errors: kFailedPrecondition for a column that is carried along and has no encoding.
Result<std::vector<MdsColumn>> mds_columns(const LatentsLayout& layout);

/// The MDS shard of one item of a latents dataset. Memory: a batch; its samples wait in scratch files.
class MdsLatentsWriter : public ItemWriter<ProcessBatch> {
 public:
  /// `run`, `layout` and `scratch` outlive the writer. Errors: the store's, mds_columns'.
  static Result<std::unique_ptr<MdsLatentsWriter>> open(JobRun& run, const WorkItem& work, const LatentsLayout& layout,
                                                        ScratchFiles& scratch);

  /// Errors: MdsWriter's.
  Status add(int64_t position, ProcessBatch batch) override;
  Result<std::unique_ptr<FinishedItem>> finish() override;

 private:
  MdsLatentsWriter(JobRun& run, const WorkItem& work, const LatentsLayout& layout) : run_(run), work_(work), layout_(layout) {}

  Status write_samples(const ProcessBatch& batch);

  JobRun& run_;
  const WorkItem work_;
  const LatentsLayout& layout_;
  std::unique_ptr<MdsWriter> shard_;
  ItemTally tally_;
};

/// Where samples of MDS shards wait: on the output's disk, else in /var/tmp. Errors: kFailedPrecondition saying that the dialect needs a
/// disk.
Result<std::unique_ptr<ScratchFiles>> open_mds_scratch(const Location& output);

/// Writes index.json anew from the parts that are there, until no process has added one meanwhile.
Status write_mds_index(JobPlan& plan, const LatentsLayout& layout, const std::stop_token& stop);

}  // namespace darkroom
