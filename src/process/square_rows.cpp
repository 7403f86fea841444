#include "darkroom/process/square_rows.h"

#include <arrow/builder.h>
#include <arrow/extension/fixed_shape_tensor.h>
#include <arrow/extension_type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "darkroom/ingest/row_dialects.h"
#include "darkroom/tables/arrow_files.h"

namespace darkroom {
namespace {

constexpr const char* kBatchOfSquares = "the record batch of squares";

int32_t bytes_of_square(int resolution) { return 3 * resolution * resolution; }

Result<std::shared_ptr<arrow::Array>> require_column(const arrow::RecordBatch& batch, const std::string& name) {
  auto column = batch.GetColumnByName(name);
  if (column == nullptr) {
    return Status::not_found(
        fmt::format("a batch of squares has no such column (columns, missing): [{}]", fmt::join(batch.schema()->field_names(), ", ")),
        name);
  }
  return column;
}

Result<std::shared_ptr<arrow::Int32Array>> require_numbers(const arrow::RecordBatch& batch, const std::string& name) {
  DARKROOM_ASSIGN_OR_RETURN(const auto column, require_column(batch, name));
  if (column->type_id() != arrow::Type::INT32) {
    return Status::failed_precondition("a column of a batch of squares must be int32 (column, type):", name, column->type()->ToString());
  }
  return std::static_pointer_cast<arrow::Int32Array>(column);
}

Result<std::shared_ptr<arrow::FixedSizeListArray>> require_squares(const arrow::RecordBatch& batch, int resolution) {
  const std::string name = squares_name(resolution);
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<arrow::Array> column, require_column(batch, name));
  if (column->type_id() == arrow::Type::EXTENSION) {
    column = static_cast<const arrow::ExtensionArray&>(*column).storage();
  }
  const bool is_lists = column->type_id() == arrow::Type::FIXED_SIZE_LIST;
  const auto lists = is_lists ? std::static_pointer_cast<arrow::FixedSizeListArray>(column) : nullptr;
  if (lists == nullptr || lists->value_type()->id() != arrow::Type::UINT8 ||
      lists->list_type()->list_size() != bytes_of_square(resolution)) {
    return Status::failed_precondition(
        fmt::format("squares must be uint8 [{0}, {0}, 3], as the transform of this resolution makes them (column, type):", resolution),
        name, column->type()->ToString());
  }
  return lists;
}

}  // namespace

Status check_row_keys(const BytesColumn& keys, const std::string& name, int64_t num_rows) {
  for (int64_t row = 0; row < num_rows; ++row) {
    if (keys.at(row).value_or("").empty()) {
      return Status::failed_precondition(
          "a row of a record batch needs a key that is neither null nor empty: it decides the row's draws (column, row of the batch):",
          name, row);
    }
  }
  return {};
}

std::string squares_name(int resolution) { return fmt::format("pixels_{}", resolution); }

Status check_beside_squares(const std::vector<std::string>& names, int resolution) {
  if (std::ranges::find(names, squares_name(resolution)) != names.end()) {
    return Status::invalid_argument("--keep-columns names the column of the squares:", squares_name(resolution));
  }
  return {};
}

std::shared_ptr<arrow::Field> squares_field(int resolution) {
  const auto type = arrow::extension::FixedShapeTensorType::Make(arrow::uint8(), {resolution, resolution, 3});
  DARKROOM_CHECK(type.ok(), "the type of squares:", type.status().ToString());
  return arrow::field(squares_name(resolution), *type, /*nullable=*/false);
}

Result<std::shared_ptr<arrow::Array>> build_squares(int resolution, std::span<const PreparedRow> rows) {
  const auto field = squares_field(resolution);
  const auto size = static_cast<int64_t>(bytes_of_square(resolution)) * static_cast<int64_t>(rows.size());
  auto buffer = arrow::AllocateBuffer(size, table_pool());
  DARKROOM_RETURN_IF_ERROR(buffer.ok() ? Status::ok() : from_arrow(buffer.status(), "squares", StatusCode::kResourceExhausted));
  uint8_t* out = (*buffer)->mutable_data();
  for (const PreparedRow& row : rows) {
    out = std::ranges::copy(row.square.pixels, out).out;
  }
  const auto values = std::make_shared<arrow::UInt8Array>(size, std::shared_ptr<arrow::Buffer>(std::move(*buffer)));
  const auto& type = static_cast<const arrow::ExtensionType&>(*field->type());
  const auto lists = std::make_shared<arrow::FixedSizeListArray>(type.storage_type(), static_cast<int64_t>(rows.size()), values);
  return arrow::ExtensionType::WrapArray(field->type(), lists);
}

Result<SquareRows> SquareRows::open(const arrow::RecordBatch& batch, int resolution) {
  DARKROOM_ASSIGN_OR_RETURN(const auto keys, require_column(batch, "key"));
  DARKROOM_ASSIGN_OR_RETURN(const auto captions, require_column(batch, "caption"));
  DARKROOM_ASSIGN_OR_RETURN(BytesColumn key_bytes, BytesColumn::open(kBatchOfSquares, "key", keys));
  DARKROOM_ASSIGN_OR_RETURN(BytesColumn caption_bytes, BytesColumn::open(kBatchOfSquares, "caption", captions));
  DARKROOM_RETURN_IF_ERROR(check_row_keys(key_bytes, "key", batch.num_rows()));
  SquareRows rows(std::move(key_bytes), std::move(caption_bytes));
  DARKROOM_ASSIGN_OR_RETURN(rows.widths_, require_numbers(batch, "width"));
  DARKROOM_ASSIGN_OR_RETURN(rows.heights_, require_numbers(batch, "height"));
  DARKROOM_ASSIGN_OR_RETURN(rows.squares_, require_squares(batch, resolution));
  rows.resolution_ = resolution;
  return rows;
}

std::optional<RowError> SquareRows::error_of(int64_t row) const {
  if (squares_->IsNull(row)) {
    return RowError{.code = RowErrorCode::kNullImage};
  }
  if (is_blank(captions_.at(row).value_or(""))) {
    return RowError{.code = RowErrorCode::kEmptyCaption};
  }
  return std::nullopt;
}

RowResult<PreparedRow> SquareRows::at(int64_t row) const {
  if (auto error = error_of(row)) {
    return *std::move(error);
  }
  const auto& values = static_cast<const arrow::UInt8Array&>(*squares_->values());
  const uint8_t* first = values.raw_values() + squares_->value_offset(row);
  return PreparedRow{.key = std::string(*keys_.at(row)),
                     .caption = std::string(*captions_.at(row)),
                     .width = widths_->Value(row),
                     .height = heights_->Value(row),
                     .square = {.width = resolution_,
                                .height = resolution_,
                                .num_channels = 3,
                                .pixels = std::vector<uint8_t>(first, first + bytes_of_square(resolution_))},
                     .ids = {}};
}

}  // namespace darkroom
