#include "latents_batch.h"

#include <arrow/buffer.h>
#include <arrow/builder.h>

#include <utility>

#include "darkroom/tables/arrow_files.h"
#include "good_rows.h"

namespace darkroom {
namespace {

Status build_failure(const arrow::Status& status) {
  return from_arrow(status, "building a latents column", StatusCode::kResourceExhausted);
}

/// A tensor's memory as Arrow sees it; keeps the tensor alive.
class TensorBuffer : public arrow::Buffer {
 public:
  /// REQUIRES: contiguous, on the CPU.
  explicit TensorBuffer(torch::Tensor tensor)
      : Buffer(static_cast<const uint8_t*>(tensor.const_data_ptr()), static_cast<int64_t>(tensor.nbytes())), tensor_(std::move(tensor)) {}

 private:
  const torch::Tensor tensor_;
};

Result<std::shared_ptr<arrow::Array>> build_ids(const torch::Tensor& ids_bt, LatentsDialect dialect) {
  auto values = std::make_shared<arrow::UInt16Builder>();
  arrow::FixedSizeListBuilder lists(arrow::default_memory_pool(), values, ids_type(dialect));
  const int64_t* id = ids_bt.const_data_ptr<int64_t>();
  arrow::Status status;
  for (int64_t row = 0; row < ids_bt.size(0); ++row) {
    status &= lists.Append();
    for (int token = 0; token < ClipTokenizer::kContextLength; ++token) {
      status &= values->Append(static_cast<uint16_t>(*id++));
    }
  }
  auto array = lists.Finish();
  status &= array.status();
  if (!status.ok()) {
    return build_failure(status);
  }
  return *array;
}

}  // namespace

Result<arrow::ArrayVector> build_text_columns(const std::vector<PreparedRow>& rows, const std::vector<int64_t>& chosen) {
  arrow::StringBuilder keys, captions;
  arrow::Int32Builder widths, heights;
  arrow::Status status;
  for (const int64_t i : chosen) {
    const PreparedRow& row = rows[static_cast<size_t>(i)];
    status &= keys.Append(row.key);
    status &= captions.Append(row.caption);
    status &= widths.Append(row.width);
    status &= heights.Append(row.height);
  }
  arrow::ArrayVector columns(4);
  status &= keys.Finish(&columns[0]);
  status &= captions.Finish(&columns[1]);
  status &= widths.Finish(&columns[2]);
  status &= heights.Finish(&columns[3]);
  if (!status.ok()) {
    return build_failure(status);
  }
  return columns;
}

Result<std::shared_ptr<arrow::RecordBatch>> make_latents_batch(const LatentsLayout& layout, const std::shared_ptr<arrow::Schema>& schema,
                                                               const ProcessBatch& batch) {
  const GoodRowsOfBatch good(batch.encoded);
  if (good.size() == 0) {
    const auto empty = arrow::RecordBatch::MakeEmpty(schema);
    DARKROOM_RETURN_IF_ERROR(empty.ok() ? Status::ok() : build_failure(empty.status()));
    return *empty;
  }
  DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector columns, build_text_columns(batch.prepared, good.numbers()));
  const auto wrap = [&](const std::vector<int64_t>& shape, const torch::Tensor& rows) {
    return wrap_tensors(layout.form(), layout.element, shape, std::make_shared<TensorBuffer>(good.of(rows)));
  };
  DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), wrap(layout.latents_shape, batch.encoded.latents_nchw));
  if (layout.has_states()) {
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), wrap(layout.states_shape, batch.encoded.states_btc));
  }
  if (layout.has_ids()) {
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), build_ids(good.of(batch.encoded.ids_bt), layout.dialect));
  }
  if (!layout.kept.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector copied, copy_kept(layout.kept, kept_of(batch, good)));
    DARKROOM_ASSIGN_OR_RETURN(copied, store_kept(layout, std::move(copied)));
    columns.insert(columns.end(), copied.begin(), copied.end());
  }
  return arrow::RecordBatch::Make(schema, good.size(), std::move(columns));
}

}  // namespace darkroom
