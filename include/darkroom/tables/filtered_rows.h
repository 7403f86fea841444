#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/where.h"

namespace darkroom {

/// Rows of a table that lie behind each other, and those of them that are kept.
struct FilteredBatch {
  std::shared_ptr<arrow::RecordBatch> batch = {};  ///< Null after the last one.
  int64_t first_row = 0;                           ///< Number in the table of the batch's row 0.
  std::vector<int64_t> kept = {};                  ///< Rows of `batch`, ascending; never empty.
};

/// The rows of a range of a table that a filter keeps. Of a Parquet file, row groups whose statistics rule every row out are
/// not read; of the others the filter's columns come first, and the other columns only from the first row that is kept to the
/// last one. A text table is read once. Memory: a batch (ReadOptions) and a byte for each of up to 1 Mi rows.
/// Thread safety: one object, one thread; the table is read by it alone meanwhile.
class FilteredRows {
 public:
  /// Rows [first, first + count) with `columns` in that order (empty: all). `filter` is bound to the table's schema; null: it
  /// keeps every row. Errors: read_rows'. REQUIRES: first, count >= 0; `table` and `filter` outlive this.
  static Result<std::unique_ptr<FilteredRows>> open(TableReader& table, const RowFilter* filter, int64_t first, int64_t count,
                                                    std::vector<std::string> columns, const ReadOptions& options = {});
  virtual ~FilteredRows() = default;

  /// The next batch that holds a kept row. Errors: RowRange's; RowFilter::evaluate's.
  virtual Result<FilteredBatch> next() = 0;
  /// Rows passed so far that were not kept. Once next() has said the end: with the kept ones, all rows of the range that the table has.
  virtual int64_t num_dropped() const = 0;
  /// As RowRange, of the rows passed so far.
  virtual int64_t num_malformed_rows() const = 0;
};

}  // namespace darkroom
