#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/ingest/input_rows.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/process/process_batch.h"

namespace darkroom {

/// How items are cut into batches.
struct ProcessReading {
  int batch_size = 1;
  RowBytes row_bytes = {};
  std::vector<std::string> kept = {};  ///< Names of the columns that are carried along.
  std::string caption_column = {};     ///< Empty: by its name.
};

/// Reads items of an image dataset and cuts them into batches. Thread safety: one worker's.
class ProcessReader : public ItemReader<ProcessBatch> {
 public:
  /// Both outlive the reader.
  ProcessReader(JobRun& run, const ProcessReading& reading);

  /// Errors: InputRows', find_image_columns'; kCorruptData (fewer rows than were pinned); kCancelled.
  Status read(ItemIntake<ProcessBatch>& intake) override;

 private:
  Result<std::vector<std::string>> choose_columns(const TableReader& table);
  Status add_rows(const KeptRows& read, int64_t first_list_row, ProcessBatch& batch, ItemIntake<ProcessBatch>& intake);
  Status hand_on(ProcessBatch batch, ItemIntake<ProcessBatch>& intake);

  JobRun& run_;
  const ProcessReading& reading_;
  ImageColumns columns_;  // Of the input that is open.
  InputRows rows_;
};

}  // namespace darkroom
