#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "darkroom/files/store.h"
#include "darkroom/ingest/job_plan.h"
#include "darkroom/tables/filtered_rows.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/where.h"

namespace darkroom {

/// The rows of input files that a condition keeps, item by item. An item that begins where the one before ended is read on from there, so
/// that a row group that many items share is decoded once. Thread safety: one thread.
class InputRows {
 public:
  /// `where` may be null and outlives this.
  InputRows(const WhereExpression* where, const ReadOptions& options) : where_(where), options_(options) {}

  /// Goes to the first row of an item. Errors: JobPlan::open_input's; WhereExpression::bind's.
  Status seek(const JobPlan& plan, const WorkItem& item);
  TableReader& table() { return *table_; }

  struct Kept {
    std::shared_ptr<arrow::RecordBatch> batch = {};  ///< Null: there are none left before the end.
    int64_t first_row = 0;                           ///< Number in the file of the batch's row 0.
    std::span<const int64_t> rows = {};              ///< Rows of `batch`, ascending, not empty; valid until the next call.
  };
  /// The next rows before row `end` of the file. Errors: FilteredRows::next's.
  Result<Kept> next(int64_t end);
  /// How many rows from the first one sought to `end` the file really has, once next(end) gave none; the next item may begin there.
  int64_t finish(int64_t end);

 private:
  const WhereExpression* const where_;
  const ReadOptions options_;
  Location place_;
  std::unique_ptr<TableReader> table_;
  std::optional<RowFilter> filter_;
  std::unique_ptr<FilteredRows> rows_;  // From opened_at_ on.
  FilteredBatch batch_;
  size_t num_taken_ = 0;  // Of batch_.kept.
  int64_t num_kept_ = 0;  // Since opened_at_.
  int64_t opened_at_ = 0;
  int64_t first_row_ = 0;
  bool is_at_end_ = false;
};

}  // namespace darkroom
