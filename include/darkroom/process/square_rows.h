#pragma once

#include <arrow/array.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/process/transform_row.h"
#include "darkroom/tables/bytes_column.h"

namespace darkroom {

/// Whether each row has a key by which it is known in every batch that it may come in. Errors: kFailedPrecondition, naming column and row.
Status check_row_keys(const BytesColumn& keys, const std::string& name, int64_t num_rows);

/// pixels_R.
std::string squares_name(int resolution);

/// Whether columns of these names can stand beside the squares. Errors: kInvalidArgument.
Status check_beside_squares(const std::vector<std::string>& names, int resolution);

/// arrow.fixed_shape_tensor of uint8 [R, R, 3].
std::shared_ptr<arrow::Field> squares_field(int resolution);

/// The squares of the rows, one after another. Errors: kResourceExhausted.
Result<std::shared_ptr<arrow::Array>> build_squares(int resolution, std::span<const PreparedRow> rows);

/// The rows of a record batch that holds squares. Keeps what it needs of the batch alive. Thread safety: immutable.
class SquareRows {
 public:
  /// Errors: kNotFound (a column that is missing), kFailedPrecondition (another type or size; a row without a key).
  static Result<SquareRows> open(const arrow::RecordBatch& batch, int resolution);

  int64_t num_rows() const { return squares_->length(); }
  /// What at() fails with: kNullImage, kEmptyCaption.
  std::optional<RowError> error_of(int64_t row) const;
  /// The row without ids.
  RowResult<PreparedRow> at(int64_t row) const;

 private:
  SquareRows(BytesColumn keys, BytesColumn captions) : keys_(std::move(keys)), captions_(std::move(captions)) {}

  BytesColumn keys_;
  BytesColumn captions_;
  std::shared_ptr<arrow::Int32Array> widths_;
  std::shared_ptr<arrow::Int32Array> heights_;
  std::shared_ptr<arrow::FixedSizeListArray> squares_;
  int resolution_ = 0;
};

}  // namespace darkroom
