#include "darkroom/process/latents_batch.h"

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

/// The memory of tensors as Arrow sees it; keeps them alive.
class TensorBuffer : public arrow::Buffer {
 public:
  explicit TensorBuffer(const RowTensors& rows)
      : Buffer(reinterpret_cast<const uint8_t*>(rows.bytes.data()), static_cast<int64_t>(rows.bytes.size())), owner_(rows.owner) {}

 private:
  const std::shared_ptr<const void> owner_;
};

Result<std::shared_ptr<arrow::Array>> build_ids(const std::vector<PreparedRow>& rows, const std::vector<int64_t>& chosen,
                                                LatentsDialect dialect) {
  auto values = std::make_shared<arrow::UInt16Builder>();
  arrow::FixedSizeListBuilder lists(arrow::default_memory_pool(), values, ids_type(dialect));
  arrow::Status status;
  for (const int64_t i : chosen) {
    status &= lists.Append();
    for (const int32_t id : rows[static_cast<size_t>(i)].ids) {
      status &= values->Append(static_cast<uint16_t>(id));
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
  const auto wrap = [&](const std::vector<int64_t>& shape, const RowTensors& rows) {
    return wrap_tensors(layout.form(), layout.element, shape, std::make_shared<TensorBuffer>(good.of(rows)));
  };
  DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), wrap(layout.latents_shape, batch.encoded.latents));
  if (layout.has_states()) {
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), wrap(layout.states_shape, batch.encoded.states));
  }
  if (layout.has_ids()) {
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), build_ids(batch.prepared, good.numbers(), layout.dialect));
  }
  if (!layout.kept.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector copied, copy_kept(layout.kept, kept_of(batch, good)));
    DARKROOM_ASSIGN_OR_RETURN(copied, store_kept(layout, std::move(copied)));
    columns.insert(columns.end(), copied.begin(), copied.end());
  }
  return arrow::RecordBatch::Make(schema, good.size(), std::move(columns));
}

}  // namespace darkroom
