#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "damage_log.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/ingest/part_record.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// One file of a dataset.
struct TablePart {
  std::string path;
  int64_t size_bytes = 0;
  int64_t num_rows = -1;  ///< -1: not counted (a large text file).
  bool is_ours = false;   ///< Its footer has a shard record.
  int64_t item = -1;      ///< Of its job; -1: not known.
  std::string content_hash = {};
};

/// The files that a URI names and what their footers say.
struct TableParts {
  std::vector<TablePart> parts;
  TableFormat format = TableFormat::kParquet;  ///< Of the first part.
  std::shared_ptr<arrow::Schema> schema;       ///< Of the first part that can be opened; null when there is none.
  bool schema_has_rows = false;                ///< False while it is that of tars without samples.
  nlohmann::json first_record;                 ///< Shard record of the first part of ours; null when there is none.
  nlohmann::json latents_record;               ///< The footer key darkroom.latents of the same part, or null.
  ItemTally tally;                             ///< Sums over the shard records.
  int64_t num_ours = 0;
  int64_t num_other_jobs = 0;     ///< Parts of ours that belong to another job than the first one.
  int64_t num_other_schemas = 0;  ///< Parts with other columns than the first one.

  int64_t num_bytes() const;
  /// -1 when a part was not counted.
  int64_t num_rows() const;
};

/// Looks at every file's footer. Text files are counted (read once) up to `max_bytes_counted` each, all of them while `damage` is on.
/// `inputs`: the dataset's files; `uri` names it in messages. Errors: kCancelled; a damaged file goes to `damage`.
Result<TableParts> find_table_parts(FileSystem& files, const std::vector<FileInfo>& inputs, const std::string& uri,
                                    int64_t max_bytes_counted, DamageLog& damage, const std::stop_token& stop);

/// A batch of rows and where it lies.
struct BatchPlace {
  const TablePart& part;
  int64_t first_row = 0;  ///< Within the file.
};
using BatchVisitor = std::function<Status(const arrow::RecordBatch& batch, const BatchPlace& place)>;

/// Rows [first, first + count).
struct RowSpan {
  int64_t first = 0;
  int64_t count = 0;
};

/// Streams rows of a part, `columns` in that order (empty: all). Returns the number of malformed rows.
/// Errors: those of the reader and of `visit`; kCancelled.
Result<int64_t> visit_rows(FileSystem& files, const TablePart& part, const RowSpan& rows, const std::vector<std::string>& columns,
                           const std::stop_token& stop, const BatchVisitor& visit);

/// The same of rows of all parts together, in their order. REQUIRES: every part is counted, or rows.first is 0.
Status visit_dataset_rows(FileSystem& files, const TableParts& parts, const RowSpan& rows, const std::vector<std::string>& columns,
                          const std::stop_token& stop, const BatchVisitor& visit);

}  // namespace darkroom
