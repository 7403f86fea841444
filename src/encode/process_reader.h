#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/row_dialects.h"
#include "process_batch.h"
#include "table_rows.h"

namespace darkroom {

/// How items are cut into batches.
struct ProcessReading {
  int batch_size = 1;
  RowBytes row_bytes = {};
  std::vector<std::string> kept = {};  ///< Names of the columns that are carried along.
};

/// Reads items of an image dataset and cuts them into batches. Thread safety: one worker's.
class ProcessReader : public ItemReader<ProcessBatch> {
 public:
  /// Both outlive the reader.
  ProcessReader(JobRun& run, const ProcessReading& reading) : run_(run), reading_(reading) {}

  /// Errors: JobPlan::open_input's, find_image_columns'; kCorruptData (fewer rows than were pinned); kCancelled.
  Status read(ItemIntake<ProcessBatch>& intake) override;

 private:
  Status open(const WorkItem& work);
  Status add_rows(const arrow::RecordBatch& read, int64_t first_list_row, ProcessBatch& batch, ItemIntake<ProcessBatch>& intake);
  Status hand_on(ProcessBatch batch, ItemIntake<ProcessBatch>& intake);

  JobRun& run_;
  const ProcessReading& reading_;
  std::string uri_;  // Of the table that is open.
  ImageColumns columns_;
  std::unique_ptr<TableRows> rows_;
};

}  // namespace darkroom
