#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tables/filtered_rows.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/where.h"

namespace darkroom {

/// Rows of a batch that are kept.
struct KeptRows {
  std::shared_ptr<arrow::RecordBatch> batch = {};  ///< Null: there are none left before the end.
  int64_t first_row = 0;                           ///< Number in the table of the batch's row 0.
  std::span<const int64_t> rows = {};              ///< Rows of `batch`, ascending, not empty; valid until the next call.
};

/// Rows of one table from place to place: a run of rows after another is sought and read to its end. A run that begins where the one before
/// ended, or further on in the row group that is open, is gone on to, so that runs in a row group decode it once; everything else is begun
/// anew. Memory: a batch (ReadOptions). Thread safety: one object, one thread.
class TableRows {
 public:
  /// `filter`: bound to the table's schema; nothing keeps every row. `columns`: empty for all.
  TableRows(std::unique_ptr<TableReader> table, std::optional<RowFilter> filter, std::vector<std::string> columns,
            const ReadOptions& options)
      : table_(std::move(table)), filter_(std::move(filter)), columns_(std::move(columns)), options_(options) {}

  TableReader& table() { return *table_; }
  /// Goes to the first row of a run. Errors: FilteredRows::open's.
  Status seek(int64_t row);
  /// The next rows that are kept before row `end` of the table. Errors: FilteredRows::next's. REQUIRES: seek().
  Result<KeptRows> next(int64_t end);
  /// Ends the run, once next(end) gave none: how many of its rows the table really has.
  int64_t finish(int64_t end);
  /// As of FilteredRows, of all that was read, which may lie behind a run's end.
  int64_t num_malformed_rows() const { return num_malformed_before_ + (rows_ == nullptr ? 0 : rows_->num_malformed_rows()); }
  /// How often a range was begun.
  int64_t num_ranges() const { return num_ranges_; }

 private:
  bool lies_ahead(int64_t row);

  const std::unique_ptr<TableReader> table_;
  const std::optional<RowFilter> filter_;
  const std::vector<std::string> columns_;
  const ReadOptions options_;
  std::unique_ptr<FilteredRows> rows_;  // From opened_at_ to the end of the table; null before the first seek().
  FilteredBatch batch_;
  size_t num_taken_ = 0;  // Of batch_.kept.
  int64_t num_kept_ = 0;  // Since opened_at_.
  int64_t opened_at_ = 0;
  int64_t first_row_ = 0;  // Of the run, or where the next one may begin; rows before it are done with.
  bool is_at_end_ = false;
  int64_t num_ranges_ = 0;
  int64_t num_malformed_before_ = 0;  // Of ranges that are closed.
};

}  // namespace darkroom
