#include "darkroom/tables/bytes_column.h"

#include <arrow/api.h>

namespace darkroom {

bool is_bytes_type(const arrow::DataType& type) { return arrow::is_base_binary_like(type.id()) || arrow::is_binary_view_like(type.id()); }

std::string_view bytes_at(const arrow::Array& array, int64_t row) {
  if (arrow::is_binary_view_like(array.type_id())) {
    return static_cast<const arrow::BinaryViewArray&>(array).GetView(row);
  }
  if (arrow::is_large_binary_like(array.type_id())) {
    return static_cast<const arrow::LargeBinaryArray&>(array).GetView(row);
  }
  return static_cast<const arrow::BinaryArray&>(array).GetView(row);
}

Result<BytesColumn> BytesColumn::open(const std::string& path, const std::string& name, std::shared_ptr<arrow::Array> array) {
  std::shared_ptr<arrow::Array> values = array;
  if (array->type_id() == arrow::Type::DICTIONARY) {
    values = static_cast<const arrow::DictionaryArray&>(*array).dictionary();
  }
  if (!is_bytes_type(*values->type())) {
    return Status::failed_precondition("a column does not hold text or bytes (table, column, type):", path, name,
                                       array->type()->ToString());
  }
  const bool is_dictionary = values != array;
  return BytesColumn(std::move(values), is_dictionary ? std::move(array) : nullptr);
}

std::optional<std::string_view> BytesColumn::at(int64_t row) const {
  if (indices_ != nullptr) {
    if (indices_->IsNull(row)) {
      return std::nullopt;
    }
    row = static_cast<const arrow::DictionaryArray&>(*indices_).GetValueIndex(row);
  }
  return values_->IsNull(row) ? std::nullopt : std::optional<std::string_view>(bytes_at(*values_, row));
}

Result<BytesColumn> open_image_column(const std::string& path, const std::string& name, const std::shared_ptr<arrow::Array>& array) {
  if (array->type_id() != arrow::Type::STRUCT) {
    return BytesColumn::open(path, name, array);
  }
  // Flattened, so that a null struct is a null image.
  const auto& structs = static_cast<const arrow::StructArray&>(*array);
  const int field = static_cast<const arrow::StructType&>(*array->type()).GetFieldIndex("bytes");
  auto flattened = structs.GetFlattenedField(field);
  if (!flattened.ok()) {
    return Status::resource_exhausted("reading the image column failed:", flattened.status().ToString());
  }
  return BytesColumn::open(path, name + ".bytes", *flattened);
}

}  // namespace darkroom
