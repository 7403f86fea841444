#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/ingest/job_inputs.h"
#include "darkroom/process/process_batch.h"
#include "darkroom/process/square_rows.h"
#include "darkroom/process/transform_row.h"

namespace darkroom {

/// Rows of a slice at most.
inline constexpr int64_t kMostTransformedRows = 256;

/// What a transformer and an encoder must have alike, so that the pixels are those that the encoder's own workers would make. `inputs`: the
/// measured list of the image dataset.
nlohmann::json transform_facts(const std::vector<JobInput>& inputs, const RowTransform& transform, const std::string& caption_column,
                               const std::vector<std::string>& keep_columns);

/// Rows as they are sent: an Arrow IPC stream of one batch of squares; which rows failed, and counts, stand in its schema's metadata.
/// `picture_bytes`: of the encoded pictures. Errors: kResourceExhausted. REQUIRES: make_squares_batch's.
Result<std::string> write_transformed_slice(int resolution, const arrow::FieldVector& kept, const ProcessBatch& rows,
                                            int64_t picture_bytes);

/// A slice that has come back. Thread safety: immutable.
class TransformedSlice {
 public:
  /// Checks whatever came. Errors: kCorruptData; kFailedPrecondition (squares of another size).
  static Result<TransformedSlice> read(const std::string& bytes, int64_t num_rows, int resolution, size_t num_kept_columns);

  /// As it was sent.
  int64_t num_bytes() const { return num_bytes_; }
  int64_t picture_bytes() const { return picture_bytes_; }
  int64_t num_invalid_captions() const { return num_invalid_captions_; }
  /// Rows [first, first + count) of the slice, as the transform stage would leave them, but without ids; positions count from
  /// `first_position`.
  ProcessBatch batch(int64_t first, int64_t count, int64_t first_position) const;
  /// Of a row, of the columns that are carried along.
  size_t kept_bytes_of_row() const { return kept_bytes_of_row_; }

 private:
  TransformedSlice(SquareRows rows, std::shared_ptr<arrow::RecordBatch> batch) : rows_(std::move(rows)), squares_(std::move(batch)) {}

  Status read_words(const nlohmann::json& words, int64_t num_rows);

  SquareRows rows_;
  std::shared_ptr<const arrow::RecordBatch> squares_;
  std::shared_ptr<const arrow::RecordBatch> kept_;  // Null where nothing is kept.
  std::vector<int64_t> positions_;                  // Of the good rows, within the slice, ascending.
  std::map<int64_t, std::string> failed_;           // The others, and their codes.
  int64_t num_invalid_captions_ = 0;
  int64_t picture_bytes_ = 0;
  size_t kept_bytes_of_row_ = 0;
  int64_t num_bytes_ = 0;
};

}  // namespace darkroom
