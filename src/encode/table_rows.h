#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// Rows of one table from place to place. What lies ahead in the row group that is open is gone on to, so that items that lie one after the
/// other decode it once; everything else is begun anew. Memory: a batch (ReadOptions). Thread safety: one object, one thread.
class TableRows {
 public:
  TableRows(std::unique_ptr<TableReader> table, std::vector<std::string> columns, const ReadOptions& options)
      : table_(std::move(table)), columns_(std::move(columns)), options_(options) {}

  TableReader& table() { return *table_; }
  /// The next row that next() gives. Errors: TableReader::read_rows'.
  Status seek(int64_t row);
  /// The next rows, at most `max_rows`; a null pointer after the table's last one. Errors: RowRange::next's. REQUIRES: seek(); max_rows >
  /// 0.
  Result<std::shared_ptr<arrow::RecordBatch>> next(int64_t max_rows);
  /// How often a range was begun.
  int64_t num_ranges() const { return num_ranges_; }

 private:
  bool lies_ahead(int64_t row);

  const std::unique_ptr<TableReader> table_;
  const std::vector<std::string> columns_;
  const ReadOptions options_;
  std::unique_ptr<RowRange> range_;            // To the end of the table; null before the first seek().
  std::shared_ptr<arrow::RecordBatch> batch_;  // Rows from next_row_ on that were read; null: none.
  int64_t next_row_ = 0;                       // Of batch_, or of range_ where there is none.
  int64_t wanted_row_ = 0;                     // next_row_, or behind it.
  int64_t num_ranges_ = 0;
};

}  // namespace darkroom
