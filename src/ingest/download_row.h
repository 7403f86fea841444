#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "darkroom/core/row_error.h"
#include "darkroom/image/probe.h"
#include "darkroom/ingest/job_identity.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/stream/memory_budget.h"

namespace darkroom {

/// One item on its way: shared by its rows and its shard.
struct DownloadItem {
  WorkItem work;
  UrlColumns columns;
  std::shared_ptr<arrow::Schema> table_schema;
  MemoryLease open_slot;  ///< Held until the shard is committed: bounds how many items are open.
};

/// One row of a URL table on its way to its shard.
struct DownloadRow {
  std::shared_ptr<DownloadItem> item;  ///< Shared by the item's rows.
  int64_t position = 0;                ///< Within the item.
  std::string url = {};
  std::string caption = {};
  bool caption_was_invalid = false;           ///< Invalid UTF-8 was replaced.
  std::shared_ptr<arrow::RecordBatch> table;  ///< The rows that this one was read with: its metadata columns. Shared by them.
  int64_t table_row = 0;
  std::string image = {};  ///< The bytes as served; empty when `error` says why there are none.
  std::optional<RowError> error = {};
  ImageHeader header = {};
  MemoryLease lease = {};
};

}  // namespace darkroom
