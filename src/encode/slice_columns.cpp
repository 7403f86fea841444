#include "slice_columns.h"

#include <arrow/buffer.h>
#include <arrow/builder.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>

#include <cstring>
#include <utility>

#include "darkroom/core/version.h"
#include "darkroom/process/arrived_batch.h"
#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/tensor_column.h"

namespace darkroom {
namespace {

constexpr int kSliceColumns = 4;

TensorElement element_of(torch::Dtype dtype) { return dtype == torch::kFloat16 ? TensorElement::kFloat16 : TensorElement::kFloat32; }

/// All rows' tensors, one after another.
Result<std::shared_ptr<arrow::Array>> tensor_array(TensorElement element, const std::vector<int64_t>& shape,
                                                   std::span<const std::shared_ptr<const EncodedRow>> encoded,
                                                   torch::Tensor EncodedRow::*member) {
  const auto row_bytes = static_cast<size_t>(element_bytes(element) * c10::multiply_integers(shape));
  auto buffer = arrow::AllocateBuffer(static_cast<int64_t>(row_bytes * encoded.size()), table_pool());
  DARKROOM_RETURN_IF_ARROW_ERROR(buffer.status(), "building a slice");
  uint8_t* out = (*buffer)->mutable_data();
  for (const auto& row : encoded) {
    std::memcpy(out, ((*row).*member).const_data_ptr(), row_bytes);
    out += row_bytes;
  }
  return wrap_tensor_column(element, shape, std::shared_ptr<arrow::Buffer>(*std::move(buffer)));
}

Result<std::string> write_stream(const arrow::RecordBatch& batch) {
  constexpr std::string_view kWhat = "writing a slice";
  auto sink = arrow::io::BufferOutputStream::Create(1 << 16, table_pool());
  DARKROOM_RETURN_IF_ARROW_ERROR(sink.status(), kWhat);
  auto writer = arrow::ipc::MakeStreamWriter(sink->get(), batch.schema());
  DARKROOM_RETURN_IF_ARROW_ERROR(writer.status(), kWhat);
  DARKROOM_RETURN_IF_ARROW_ERROR((*writer)->WriteRecordBatch(batch), kWhat);
  DARKROOM_RETURN_IF_ARROW_ERROR((*writer)->Close(), kWhat);
  const auto bytes = (*sink)->Finish();
  DARKROOM_RETURN_IF_ARROW_ERROR(bytes.status(), kWhat);
  return (*bytes)->ToString();
}

/// The one batch of the stream.
Result<std::shared_ptr<arrow::RecordBatch>> read_stream(std::string bytes) {
  DARKROOM_ASSIGN_OR_RETURN(auto batch, read_arrived_batch(std::move(bytes), "reading a slice"));
  if (batch->num_columns() != kSliceColumns) {
    return Status::corrupt_data("a slice does not have its columns (columns, want):", batch->num_columns(), kSliceColumns);
  }
  return batch;
}

Status check_rows(const arrow::RecordBatch& batch, std::span<const int64_t> rows) {
  const auto& numbers = batch.column(0);
  const auto& keys = batch.column(1);
  if (batch.num_rows() != static_cast<int64_t>(rows.size()) || numbers->type_id() != arrow::Type::INT64 ||
      keys->type_id() != arrow::Type::STRING || numbers->null_count() > 0 || keys->null_count() > 0) {
    return Status::corrupt_data("a slice does not hold the rows that were asked for (rows, want):", batch.num_rows(), rows.size());
  }
  const auto& values = static_cast<const arrow::Int64Array&>(*numbers);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (values.Value(static_cast<int64_t>(i)) != rows[i]) {
      return Status::corrupt_data("a slice holds another row than was asked for (row, want):", values.Value(static_cast<int64_t>(i)),
                                  rows[i]);
    }
  }
  return {};
}

Result<torch::Tensor> read_tensors(const arrow::RecordBatch& batch, int column, torch::Dtype dtype, const std::vector<int64_t>& shape) {
  DARKROOM_ASSIGN_OR_RETURN(const TensorColumn tensors, TensorColumn::open(*batch.schema()->field(column), batch.column(column), shape));
  if (tensors.element() != element_of(dtype)) {
    return Status::corrupt_data("a slice holds another type than was agreed on (column):", batch.schema()->field(column)->name());
  }
  std::vector<int64_t> all = shape;
  all.insert(all.begin(), batch.num_rows());
  torch::Tensor values = torch::empty(all, dtype);
  auto* out = static_cast<std::byte*>(values.mutable_data_ptr());
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    if (tensors.is_null(row)) {
      return Status::corrupt_data("a slice lacks a tensor (column, row of the slice):", batch.schema()->field(column)->name(), row);
    }
    const std::span<const std::byte> bytes = tensors.bytes(row);
    std::memcpy(out, bytes.data(), bytes.size());
    out += bytes.size();
  }
  return values;
}

}  // namespace

int64_t SliceForm::row_bytes() const {
  return element_bytes(element_of(dtype)) * (c10::multiply_integers(latents_shape) + c10::multiply_integers(states_shape));
}

SliceForm form_of(const RowEncoder& encoder) {
  return {.dtype = encoder.options().dtype, .latents_shape = encoder.latents_shape(), .states_shape = encoder.states_shape()};
}

nlohmann::json slice_facts(const DatasetIndex& index, const RowEncoder& encoder) {
  const RowEncoderOptions& options = encoder.options();
  const FrozenModels& models = encoder.models();
  return {{"version", kVersion},
          {"dataset (index hash)", index.hash()},
          {"rows of the dataset", index.num_rows()},
          {"VAE (fingerprint)", models.vae_fingerprint},
          {"text encoder (fingerprint)", models.text_encoder_fingerprint},
          {"tokenizer (fingerprint)", models.tokenizer->fingerprint()},
          {"tokenizer dialect", tokenizer_dialect_name(models.tokenizer->dialect())},
          {"resolution", options.transform.resolution},
          {"resize", filter_name(options.transform.filter)},
          {"crop", crop_name(options.transform.crop)},
          {"orientation", options.transform.orientation == Orientation::kApply ? "apply" : "ignore"},
          {"seed of process", options.seed},
          {"storage type", float_type_name(options.dtype)},
          {"shape of latents", encoder.latents_shape()},
          {"shape of text states", encoder.states_shape()}};
}

nlohmann::json slice_place(const RowEncoder& encoder, int threads) {
  return {{"device", encoder.place().device_class()},
          {"compute type", float_type_name(encoder.place().type)},
          {"rows in a call of the networks", encoder.options().rows_together},
          {"threads of an encoder", threads}};
}

Result<std::string> write_slice(const SliceForm& form, std::span<const int64_t> rows,
                                std::span<const std::shared_ptr<const EncodedRow>> encoded) {
  arrow::Int64Builder numbers;
  arrow::StringBuilder keys;
  arrow::Status status = numbers.AppendValues(rows.data(), static_cast<int64_t>(rows.size()));
  for (const auto& row : encoded) {
    status &= keys.Append(row->key);
  }
  arrow::ArrayVector columns(2);
  status &= numbers.Finish(&columns[0]) & keys.Finish(&columns[1]);
  DARKROOM_RETURN_IF_ARROW_ERROR(status, "building a slice");
  const TensorElement element = element_of(form.dtype);
  DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), tensor_array(element, form.latents_shape, encoded, &EncodedRow::latents_chw));
  DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), tensor_array(element, form.states_shape, encoded, &EncodedRow::states_tw));
  const auto schema = arrow::schema({arrow::field("row", arrow::int64()), arrow::field("key", arrow::utf8()),
                                     arrow::field("latents", columns[2]->type()), arrow::field("states", columns[3]->type())});
  return write_stream(*arrow::RecordBatch::Make(schema, static_cast<int64_t>(rows.size()), std::move(columns)));
}

Result<std::shared_ptr<const EncodedSlice>> read_slice(const SliceForm& form, std::span<const int64_t> rows, std::string bytes) {
  DARKROOM_ASSIGN_OR_RETURN(const auto batch, read_stream(std::move(bytes)));
  DARKROOM_RETURN_IF_ERROR(check_rows(*batch, rows));
  auto slice = std::make_shared<EncodedSlice>();
  const auto& keys = static_cast<const arrow::StringArray&>(*batch->column(1));
  for (int64_t row = 0; row < batch->num_rows(); ++row) {
    slice->keys.push_back(keys.GetString(row));
  }
  DARKROOM_ASSIGN_OR_RETURN(slice->latents_nchw, read_tensors(*batch, 2, form.dtype, form.latents_shape));
  DARKROOM_ASSIGN_OR_RETURN(slice->states_btc, read_tensors(*batch, 3, form.dtype, form.states_shape));
  return std::shared_ptr<const EncodedSlice>(std::move(slice));
}

}  // namespace darkroom
