#pragma once

#include <arrow/array.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "darkroom/core/result.h"

namespace darkroom {

/// Whether values of the type are text or bytes: string, binary, their large forms and views.
bool is_bytes_type(const arrow::DataType& type);

/// The bytes of a row that is not null. REQUIRES: is_bytes_type of the array's type.
std::string_view bytes_at(const arrow::Array& array, int64_t row);

/// A row's value of a text or binary column (string, binary, their large forms and views, or a dictionary of these): the bytes as stored,
/// valid while the array lives. Empty optional for null. Errors: kFailedPrecondition naming the column and its type.
class BytesColumn {
 public:
  static Result<BytesColumn> open(const std::string& path, const std::string& name, std::shared_ptr<arrow::Array> array);
  std::optional<std::string_view> at(int64_t row) const;

 private:
  BytesColumn(std::shared_ptr<arrow::Array> values, std::shared_ptr<arrow::Array> indices)
      : values_(std::move(values)), indices_(std::move(indices)) {}

  std::shared_ptr<arrow::Array> values_;   // Shared with the batch that it came from.
  std::shared_ptr<arrow::Array> indices_;  // The dictionary array, or null.
};

/// The bytes of an image column's rows; a struct {bytes, path} is seen through.
Result<BytesColumn> open_image_column(const std::string& path, const std::string& name, const std::shared_ptr<arrow::Array>& array);

}  // namespace darkroom
