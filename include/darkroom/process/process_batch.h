#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "darkroom/ingest/item_pipeline.h"
#include "darkroom/ingest/part_record.h"
#include "darkroom/process/kept_columns.h"
#include "darkroom/process/process_encoder.h"
#include "darkroom/process/transform_row.h"

namespace darkroom {

/// Rows [k * batch_size, (k + 1) * batch_size) of an item, where k is the piece's position: always the same rows, whoever works on them.
struct ProcessBatch {
  int64_t first_position = 0;              ///< Of its first row, within the item.
  std::vector<ImageRow> rows = {};         ///< Until they are prepared.
  std::vector<KeptRow> kept = {};          ///< Of each row; empty where no column is kept.
  size_t kept_bytes = 0;                   ///< What `kept` holds.
  std::vector<PreparedRow> prepared = {};  ///< The good ones; without pixels once encoded.
  std::vector<int64_t> positions = {};     ///< Of the prepared rows, within the item.
  StoredRows encoded = {};                 ///< Of `prepared`.
  ItemTally tally = {};

  void count_failed(const std::string& code, int64_t position) {
    ++tally.rows_by_error[code];
    tally.failed_rows[code].push_back(position);
  }
};

using ProcessPiece = ItemPiece<ProcessBatch>;

/// What a row takes at most on its way, besides its encoded picture.
struct RowBytes {
  size_t prepared = 0;  ///< Its pixels.
  size_t encoded = 0;   ///< Its latents and states.
};

}  // namespace darkroom
