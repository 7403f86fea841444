#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "darkroom/core/log.h"
#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "image_row_reader.h"

namespace darkroom {

/// The rows of an image dataset, where one that cannot be used is replaced by the next good one and told of in a warning.
/// Thread safety: any thread; reading is done by one at a time.
class GoodPictureRows {
 public:
  /// The row's own error; the outer one ends the read.
  using Work = std::function<Result<std::optional<RowError>>(const ImageRow&)>;

  explicit GoodPictureRows(std::unique_ptr<ImageRowReader> reader) : reader_(std::move(reader)) {}

  /// Works on the row that lies `tries` behind `row`; on failure on those after it, until one succeeds: `tries` then says which.
  /// Errors: kFailedPrecondition (no row was any good), those of reading and of the work.
  Status work(int64_t row, int64_t& tries, const Work& work) {
    for (; tries < reader_->num_rows(); ++tries) {
      DARKROOM_ASSIGN_OR_RETURN(const ImageRow image, read(row + tries));
      DARKROOM_ASSIGN_OR_RETURN(const std::optional<RowError> error, work(image));
      if (!error) {
        return {};
      }
      note(row + tries, *error);
    }
    return Status::failed_precondition("not one row of the image dataset can be used; rows:", reader_->num_rows());
  }
  /// Tells of a row that turned out to be no good.
  void note(int64_t row, const RowError& error) {
    constexpr int64_t kWarningsShown = 10;
    const std::lock_guard lock(mutex_);
    if (++num_replaced_ <= kWarningsShown) {
      log_warning("a row is replaced by the next good one ({}): {}{}", error.name(), describe(row % reader_->num_rows()),
                  num_replaced_ == kWarningsShown ? "; further ones are not shown" : "");
    }
  }
  std::string describe(int64_t row) const { return reader_->describe(row); }

 private:
  Result<ImageRow> read(int64_t row) {
    const std::lock_guard lock(mutex_);
    return reader_->read(row % reader_->num_rows());
  }

  std::mutex mutex_;
  std::unique_ptr<ImageRowReader> reader_;  // Guarded by mutex_ but for what never changes: places and the number of rows.
  int64_t num_replaced_ = 0;                // Guarded by mutex_.
};

}  // namespace darkroom
