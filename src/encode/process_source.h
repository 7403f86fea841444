#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/stream/memory_budget.h"
#include "darkroom/stream/pipeline.h"
#include "darkroom/tables/table_reader.h"
#include "process_batch.h"

namespace darkroom {

/// Hands a job's pending items to the reading workers in order. Thread safety: any thread.
class PendingItems {
 public:
  PendingItems(JobRun& run, MemoryBudget& open_items) : run_(run), open_items_(open_items) {}
  /// The next item with its slot; a null pointer when none is left. Errors: JobRun::take_item's.
  Result<std::shared_ptr<ProcessItem>> take(const std::stop_token& stop);

 private:
  JobRun& run_;
  MemoryBudget& open_items_;
  std::mutex mutex_;  // Held while a slot is awaited, so that items get their slots in order.
};

/// What a batch of one row takes after decoding and encoding.
struct RowBytes {
  size_t prepared = 0;
  size_t encoded = 0;
};

/// Reads items of an image dataset and cuts them into batches. Thread safety: one worker.
class ProcessSource {
 public:
  using Consumer = std::function<Status(ProcessBatch batch)>;

  ProcessSource(const JobRun& run, PendingItems& items, MemoryBudget& rows, int batch_size, RowBytes row_bytes)
      : run_(run), items_(items), rows_(rows), batch_size_(batch_size), row_bytes_(row_bytes) {}

  /// Reads until no item is left; `out` is the worker's way out, asked for the stop and told about waits. Errors: open_table's,
  /// find_image_columns'; kCorruptData (fewer rows than were pinned); kCancelled.
  Status read_all(const Consumer& consume, Emitter<ProcessBatch>& out);

 private:
  Status read_item(const std::shared_ptr<ProcessItem>& item, const Consumer& consume, Emitter<ProcessBatch>& out);
  Status hand_on(ProcessBatch batch, const Consumer& consume, Emitter<ProcessBatch>& out);

  const JobRun& run_;
  PendingItems& items_;
  MemoryBudget& rows_;
  const int batch_size_;
  const RowBytes row_bytes_;
  std::unique_ptr<TableReader> table_;  // Of the input that was read last.
};

/// Reads rows [first, first + count) of one image table; `consume` gets them one by one, in order. Captions are valid UTF-8;
/// rows without a key are named by their number in the pinned list. Errors: as ProcessSource::read_all.
using RowConsumer = std::function<Status(ImageRow row, bool caption_was_invalid)>;
Status read_image_rows(TableReader& table, const WorkItem& work, const RowConsumer& consume);

}  // namespace darkroom
