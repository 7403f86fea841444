#include "table_rows.h"

#include <algorithm>

namespace darkroom {

/// Whether `row` is the next one or comes later in the row group that is being read.
bool TableRows::lies_ahead(int64_t row) {
  if (range_ == nullptr || row < next_row_) {
    return false;
  }
  return row == next_row_ || table_->row_groups(next_row_, row - next_row_ + 1, {}).size() == 1;
}

Status TableRows::seek(int64_t row) {
  if (!lies_ahead(row)) {
    batch_.reset();
    range_.reset();
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_rows, table_->num_rows());
    DARKROOM_ASSIGN_OR_RETURN(range_, table_->read_rows(row, std::max<int64_t>(num_rows - row, 0), columns_, options_));
    next_row_ = row;
    ++num_ranges_;
  }
  wanted_row_ = row;
  return Status::ok();
}

Result<std::shared_ptr<arrow::RecordBatch>> TableRows::next(int64_t max_rows) {
  while (true) {
    if (batch_ == nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(batch_, range_->next());
      if (batch_ == nullptr) {
        return batch_;
      }
    }
    const int64_t skipped = std::min(wanted_row_ - next_row_, batch_->num_rows());
    const int64_t taken = std::min(max_rows, batch_->num_rows() - skipped);
    std::shared_ptr<arrow::RecordBatch> rows = batch_->Slice(skipped, taken);
    const int64_t used = skipped + taken;
    batch_ = used < batch_->num_rows() ? batch_->Slice(used) : nullptr;
    next_row_ += used;
    if (taken > 0) {
      wanted_row_ = next_row_;
      return rows;
    }
  }
}

}  // namespace darkroom
