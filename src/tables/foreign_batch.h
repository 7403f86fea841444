#pragma once

#include <arrow/record_batch.h>
#include <arrow/status.h>

namespace darkroom {

/// ValidateFull on data that others wrote, save that text may be any bytes: one caption that is not UTF-8 must not cost
/// a whole file.
arrow::Status validate_foreign(const arrow::RecordBatch& batch);

}  // namespace darkroom
