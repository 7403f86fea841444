#include "base_rows.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/part_name.h"

namespace darkroom {
namespace {

constexpr const char* kKeyColumn = "key";
constexpr int64_t kBaseBatchBytes = 1 << 20;

/// The number that a key of ours is.
std::optional<int64_t> number_of_key(std::optional<std::string_view> key) {
  int64_t number = 0;
  if (!key) {
    return std::nullopt;
  }
  const auto [end, failure] = std::from_chars(key->data(), key->data() + key->size(), number);
  const bool is_key = failure == std::errc() && number >= 0 && end == key->data() + key->size() && row_key(number) == *key;
  return is_key ? std::optional(number) : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<BaseRows>> BaseRows::open(const BasePart& base, const std::vector<std::string>& columns, const WorkItem& item,
                                                 int64_t read_ahead_bytes) {
  std::unique_ptr<BaseRows> made(new BaseRows(base, item));
  Result<std::unique_ptr<TableReader>> table = open_table(base.place);
  if (table.status().code() == StatusCode::kNotFound) {
    // Another process has redone the item since it was looked at; then the part that we make gives way.
    table = open_table(base.place.parent() / kSupersededFolder / base.place.name());
  }
  DARKROOM_ASSIGN_OR_RETURN(made->table_, std::move(table));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t num_rows, made->table_->num_rows());
  DARKROOM_ASSIGN_OR_RETURN(
      made->rows_, made->table_->read_rows(0, num_rows, columns, {.batch_bytes = kBaseBatchBytes, .read_ahead_bytes = read_ahead_bytes}));
  DARKROOM_RETURN_IF_ERROR(made->read_batch());
  return made;
}

Status BaseRows::read_batch() {
  batch_.reset();  // Before the next one comes.
  row_ = 0;
  DARKROOM_ASSIGN_OR_RETURN(batch_, rows_->next());
  return batch_ == nullptr ? Status::ok() : find_positions();
}

Status BaseRows::find_positions() {
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn keys, BytesColumn::open(place_.uri(), kKeyColumn, batch_->GetColumnByName(kKeyColumn)));
  positions_.clear();
  for (int64_t row = 0; row < batch_->num_rows(); ++row) {
    const std::optional<int64_t> number = number_of_key(keys.at(row));
    const int64_t position = number.value_or(-1) - item_.list_row;
    if (!number || position <= last_position_ || position >= item_.whole_rows) {
      return Status::corrupt_data("a part whose failed rows are redone has a key that is none of its item's, or not in order (part, key):",
                                  place_.uri(), keys.at(row).value_or("(null)"));
    }
    positions_.push_back(position);
    last_position_ = position;
  }
  return Status::ok();
}

bool BaseRows::is_redone(int64_t position) const { return std::ranges::binary_search(redone_, position); }

Result<std::shared_ptr<arrow::RecordBatch>> BaseRows::next(int64_t position) {
  while (batch_ != nullptr) {
    while (row_ < positions_.size() && is_redone(positions_[row_])) {
      ++row_;
    }
    const size_t first = row_;
    while (row_ < positions_.size() && positions_[row_] < position && !is_redone(positions_[row_])) {
      ++row_;
    }
    if (row_ > first) {
      num_rows_ += static_cast<int64_t>(row_ - first);
      handed_out_ = std::span(positions_).subspan(first, row_ - first);
      return batch_->Slice(static_cast<int64_t>(first), static_cast<int64_t>(row_ - first));
    }
    if (row_ < positions_.size()) {
      break;
    }
    DARKROOM_RETURN_IF_ERROR(read_batch());
  }
  return std::shared_ptr<arrow::RecordBatch>();
}

}  // namespace darkroom
