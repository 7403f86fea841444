#include "darkroom/feed/dataset_rows.h"

#include <utility>

namespace darkroom {

Result<std::unique_ptr<DatasetRows>> DatasetRows::open(DatasetFiles dataset, int64_t first, int64_t count, std::vector<std::string> columns,
                                                       const ReadOptions& options) {
  if (first < 0 || count < 0) {
    return Status::invalid_argument("rows are numbered from 0 on (first, count):", first, count);
  }
  return std::unique_ptr<DatasetRows>(new DatasetRows(std::move(dataset), first, count, std::move(columns), options));
}

Status DatasetRows::open_next_file() {
  DARKROOM_ASSIGN_OR_RETURN(table_, open_table(dataset_.objects[next_file_].place));
  if (num_to_skip_ > 0) {
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_rows, table_->num_rows());
    if (num_rows <= num_to_skip_) {
      num_to_skip_ -= num_rows;
      ++next_file_;
      return Status::ok();
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(range_, table_->read_rows(num_to_skip_, num_left_, columns_, options_));
  num_to_skip_ = 0;
  ++next_file_;  // Last: whoever asks again after a failure gets this file's rows.
  return Status::ok();
}

Result<std::shared_ptr<arrow::RecordBatch>> DatasetRows::next() {
  while (num_left_ > 0 && (range_ != nullptr || next_file_ < dataset_.objects.size())) {
    if (range_ == nullptr) {
      DARKROOM_RETURN_IF_ERROR(open_next_file());
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(auto batch, range_->next());
    if (batch != nullptr) {
      num_left_ -= batch->num_rows();
      return batch;
    }
    range_ = nullptr;
  }
  return std::shared_ptr<arrow::RecordBatch>();
}

}  // namespace darkroom
