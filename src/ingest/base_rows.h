#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "darkroom/ingest/job_plan.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// What is read ahead of a part that is made anew, beside what is written of it.
inline constexpr int64_t kBaseReadAheadBytes = int64_t{2} << 20;

/// The rows of a part with their places in its item, a few at a time: those that stay as they are when others are redone. Memory: a batch
/// of 1 MiB, or a row, and what is read ahead of each column. Thread safety: one thread.
class BaseRows {
 public:
  /// With `columns` in that order (empty: all); `key` must be among them. `read_ahead_bytes`: as ReadOptions'; twice as much is held.
  /// Errors: open_table's; next()'s.
  static Result<std::unique_ptr<BaseRows>> open(const BasePart& base, const std::vector<std::string>& columns, const WorkItem& item,
                                                int64_t read_ahead_bytes = kReadAheadBytes);

  /// All columns of the part.
  const std::shared_ptr<arrow::Schema>& schema() const { return table_->schema(); }

  /// The next rows that stay and lie before `position` within the item; null: there are none left before it.
  /// Errors: RowRange's; kCorruptData naming the part where its keys are not those of the item, ascending.
  Result<std::shared_ptr<arrow::RecordBatch>> next(int64_t position);
  /// Where the rows that were handed out last lie within the item; valid until the next call.
  std::span<const int64_t> positions() const { return handed_out_; }
  /// Rows that were handed out.
  int64_t num_rows() const { return num_rows_; }

 private:
  BaseRows(const BasePart& base, const WorkItem& item) : place_(base.place), redone_(base.redone), item_(item) {}

  Status read_batch();
  Status find_positions();
  bool is_redone(int64_t position) const;

  const Location place_;
  const std::vector<int64_t> redone_;
  const WorkItem item_;
  std::unique_ptr<TableReader> table_;
  std::unique_ptr<RowRange> rows_;
  std::shared_ptr<arrow::RecordBatch> batch_;  // Null: at the end.
  std::vector<int64_t> positions_;             // Of the batch's rows.
  size_t row_ = 0;                             // The next one of the batch.
  std::span<const int64_t> handed_out_;        // Within positions_.
  int64_t last_position_ = -1;
  int64_t num_rows_ = 0;
};

}  // namespace darkroom
