#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <memory>

#include "darkroom/core/result.h"
#include "darkroom/process/process_batch.h"
#include "darkroom/process/square_rows.h"

namespace darkroom {

/// key, caption, width, height, pixels_R and what is kept (of these types) of the rows that were prepared: what SquareRows reads. Errors:
/// kResourceExhausted. REQUIRES: batch.kept is empty or has a row for each row of the batch, good or not; first_position is 0.
Result<std::shared_ptr<arrow::RecordBatch>> make_squares_batch(int resolution, const arrow::FieldVector& kept, const ProcessBatch& batch);

}  // namespace darkroom
