#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "darkroom/core/row_error.h"
#include "darkroom/image/probe.h"
#include "darkroom/ingest/item_pipeline.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/row_dialects.h"

namespace darkroom {

/// One item on its way. Its reader fills in all but `rows_filtered` before the first piece, and that before the item's end.
class DownloadItem : public JobItem {
 public:
  using JobItem::JobItem;

  UrlColumns columns = {};
  std::shared_ptr<arrow::Schema> table_schema = {};
  int64_t rows_filtered = 0;          ///< Rows of the item that the condition drops; of a retried one they stand in its base.
  std::optional<BasePart> base = {};  ///< Of a retried item.
};

/// One row of a URL table on its way to its shard.
struct DownloadRow {
  int64_t position = 0;  ///< Within the item, with the rows that a condition drops.
  std::string url = {};
  std::string caption = {};
  bool caption_was_invalid = false;           ///< Invalid UTF-8 was replaced.
  std::shared_ptr<arrow::RecordBatch> table;  ///< The rows that this one was read with: its metadata columns. Shared by them.
  int64_t table_row = 0;
  size_t table_bytes = 0;  ///< The row's share of `table`.
  std::string image = {};  ///< The bytes as served; empty when `error` says why there are none.
  std::optional<RowError> error = {};
  ImageHeader header = {};
};

using DownloadPiece = ItemPiece<DownloadRow>;

}  // namespace darkroom
