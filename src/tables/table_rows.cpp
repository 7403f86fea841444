#include "darkroom/tables/table_rows.h"

#include <algorithm>
#include <limits>

namespace darkroom {

/// Whether the range that is open reaches `row` without reading another row group in vain.
bool TableRows::lies_ahead(int64_t row) {
  if (rows_ == nullptr || row < first_row_) {
    return false;
  }
  return row == first_row_ || table_->row_groups(first_row_, row - first_row_ + 1, {}).size() == 1;
}

Status TableRows::seek(int64_t row) {
  if (!lies_ahead(row)) {
    num_malformed_before_ = num_malformed_rows();
    rows_.reset();
    batch_ = {};
    const RowFilter* const filter = filter_ ? &*filter_ : nullptr;
    DARKROOM_ASSIGN_OR_RETURN(rows_,
                              FilteredRows::open(*table_, filter, row, std::numeric_limits<int64_t>::max() - row, columns_, options_));
    opened_at_ = row;
    num_taken_ = 0;
    num_kept_ = 0;
    is_at_end_ = false;
    ++num_ranges_;
  }
  first_row_ = row;
  return Status::ok();
}

Result<KeptRows> TableRows::next(int64_t end) {
  while (true) {
    const auto first =
        std::lower_bound(batch_.kept.begin() + static_cast<int64_t>(num_taken_), batch_.kept.end(), first_row_ - batch_.first_row);
    const auto last = std::lower_bound(first, batch_.kept.end(), end - batch_.first_row);
    num_taken_ = static_cast<size_t>(last - batch_.kept.begin());
    if (first != last) {
      return KeptRows{.batch = batch_.batch, .first_row = batch_.first_row, .rows = {first, last}};
    }
    const bool reaches_end = batch_.batch != nullptr && batch_.first_row + batch_.batch->num_rows() >= end;
    if (is_at_end_ || reaches_end || last != batch_.kept.end()) {
      return KeptRows{};
    }
    batch_ = {};  // Before the next one comes.
    num_taken_ = 0;
    DARKROOM_ASSIGN_OR_RETURN(batch_, rows_->next());
    is_at_end_ = batch_.batch == nullptr;
    num_kept_ += static_cast<int64_t>(batch_.kept.size());
  }
}

int64_t TableRows::finish(int64_t end) {
  const int64_t there = is_at_end_ ? std::min(end, opened_at_ + num_kept_ + rows_->num_dropped()) : end;
  const int64_t num_rows = std::max<int64_t>(there - first_row_, 0);
  first_row_ = end;
  return num_rows;
}

}  // namespace darkroom
