#pragma once

#include <arrow/record_batch.h>

#include <memory>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/process/latents_layout.h"
#include "darkroom/process/process_batch.h"
#include "darkroom/process/transform_row.h"

namespace darkroom {

/// The good rows of an encoded batch as columns of a Parquet layout; tensors lie where the encoder put them. No rows where none is good.
/// Errors: kResourceExhausted. REQUIRES: schema == layout.schema().
Result<std::shared_ptr<arrow::RecordBatch>> make_latents_batch(const LatentsLayout& layout, const std::shared_ptr<arrow::Schema>& schema,
                                                               const ProcessBatch& batch);

/// key, caption, width and height of the rows chosen. Errors: kResourceExhausted.
Result<arrow::ArrayVector> build_text_columns(const std::vector<PreparedRow>& rows, const std::vector<int64_t>& chosen);

}  // namespace darkroom
