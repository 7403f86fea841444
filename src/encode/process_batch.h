#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "darkroom/encode/row_encoder.h"
#include "darkroom/ingest/part_record.h"
#include "darkroom/stream/memory_budget.h"

namespace darkroom {

/// One item on its way: shared by its batches and its shard.
struct ProcessItem {
  WorkItem work;
  int64_t num_batches = 0;
  MemoryLease open_slot;  ///< Held until the shard is committed: bounds how many items are open.
};

/// Rows [index * batch_size, ...) of an item: always the same rows, whoever works on them.
struct ProcessBatch {
  std::shared_ptr<ProcessItem> item;  ///< Shared by the item's batches.
  int64_t index = 0;
  std::vector<ImageRow> rows = {};         ///< Until they are prepared.
  int64_t first_position = 0;              ///< Of its first row, within the item.
  std::vector<PreparedRow> prepared = {};  ///< The good ones; without pixels once encoded.
  std::vector<int64_t> positions = {};     ///< Of the prepared rows, within the item.
  EncodedRows encoded = {};                ///< Of `prepared`.
  ItemTally tally = {};
  MemoryLease lease = {};

  void count_failed(const std::string& code, int64_t position) {
    ++tally.rows_by_error[code];
    tally.failed_rows[code].push_back(position);
  }
};

}  // namespace darkroom
