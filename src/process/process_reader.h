#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
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
  int64_t read_ahead_bytes = 0;        ///< ReadOptions'.
  int64_t memory_bytes = 0;            ///< A reader's share: one whose pages take more is told of.
  int num_readers = 1;
};

/// Reads items of an image dataset and cuts them into batches. Thread safety: one worker's.
class ProcessReader : public ItemReader<ProcessBatch> {
 public:
  /// All outlive the reader. `has_told`: of large pages; shared by the job's readers.
  ProcessReader(JobRun& run, const ProcessReading& reading, std::atomic<bool>& has_told);

  /// Errors: InputRows', find_image_columns'; kCorruptData (fewer rows than were pinned); kCancelled.
  Status read(ItemIntake<ProcessBatch>& intake) override;

 private:
  Result<std::vector<std::string>> choose_columns(const TableReader& table);
  ReadOptions read_options();
  Status hold_pages(int64_t num_bytes);
  Status read_item(ItemIntake<ProcessBatch>& intake);
  Status add_rows(const KeptRows& read, int64_t first_list_row, ProcessBatch& batch, ItemIntake<ProcessBatch>& intake);
  Status hand_on(ProcessBatch batch, ItemIntake<ProcessBatch>& intake);

  JobRun& run_;
  const ProcessReading& reading_;
  std::atomic<bool>& has_told_;
  ImageColumns columns_;                        // Of the input that is open.
  std::string path_;                            // Likewise.
  ItemIntake<ProcessBatch>* intake_ = nullptr;  // Of the item that is read.
  int64_t page_bytes_ = 0;                      // Held by rows_.
  std::optional<InputRows> rows_;               // Empty: of a page that was given up, or not begun.
};

}  // namespace darkroom
