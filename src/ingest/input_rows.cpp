#include "input_rows.h"

#include <algorithm>

namespace darkroom {

Status InputRows::seek(const JobPlan& plan, const WorkItem& item) {
  const Location place = plan.input_place(item);
  const int64_t first_row = item.first_row;
  const bool is_same = table_ != nullptr && place_.store == place.store && place_.path == place.path;
  if (is_same && rows_ != nullptr && first_row_ == first_row) {
    return Status::ok();
  }
  rows_.reset();
  batch_ = {};
  if (!is_same) {
    table_.reset();
    DARKROOM_ASSIGN_OR_RETURN(table_, plan.open_input(item));
    place_ = place;
    filter_.reset();
    if (where_ != nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(filter_, where_->bind(*table_->schema(), table_->format(), table_->path()));
    }
  }
  const RowFilter* const filter = filter_ ? &*filter_ : nullptr;
  const int64_t num_rows = plan.inputs()[item.input].num_rows - first_row;
  DARKROOM_ASSIGN_OR_RETURN(rows_, FilteredRows::open(*table_, filter, first_row, num_rows, {}, options_));
  opened_at_ = first_row_ = first_row;
  num_taken_ = 0;
  num_kept_ = 0;
  is_at_end_ = false;
  return Status::ok();
}

Result<InputRows::Kept> InputRows::next(int64_t end) {
  if (num_taken_ == batch_.kept.size() && !is_at_end_) {
    batch_ = {};  // Before the next one comes.
    num_taken_ = 0;
    DARKROOM_ASSIGN_OR_RETURN(batch_, rows_->next());
    is_at_end_ = batch_.batch == nullptr;
    num_kept_ += static_cast<int64_t>(batch_.kept.size());
  }
  const auto first = batch_.kept.begin() + static_cast<int64_t>(num_taken_);
  const auto last = std::lower_bound(first, batch_.kept.end(), end - batch_.first_row);
  if (is_at_end_ || first == last) {
    return Kept{};
  }
  const std::span<const int64_t> rows(first, last);
  num_taken_ += rows.size();
  return Kept{.batch = batch_.batch, .first_row = batch_.first_row, .rows = rows};
}

int64_t InputRows::finish(int64_t end) {
  const int64_t there = is_at_end_ ? std::min(end, opened_at_ + num_kept_ + rows_->num_dropped()) : end;
  const int64_t num_rows = there - first_row_;
  first_row_ = end;
  return num_rows;
}

}  // namespace darkroom
