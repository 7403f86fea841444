#pragma once

#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "darkroom/core/result.h"

namespace darkroom {

/// Copies single values of any column into a new one: dictionaries are resolved, invalid UTF-8 in text is replaced, also
/// within lists, structs and maps.
class ValueCopier {
 public:
  /// Errors: kFailedPrecondition for a type that Arrow cannot build.
  static Result<ValueCopier> create(const std::string& name, const std::shared_ptr<arrow::DataType>& type);
  /// The type of what comes out: the dictionary's value type, else the column's own.
  const std::shared_ptr<arrow::DataType>& type() const { return type_; }
  /// Errors: kFailedPrecondition (a value of another type); kResourceExhausted.
  Status append(const arrow::Array& array, int64_t row);
  Result<std::shared_ptr<arrow::Array>> finish();

 private:
  ValueCopier(std::shared_ptr<arrow::DataType> type, std::unique_ptr<arrow::ArrayBuilder> builder)
      : type_(std::move(type)), builder_(std::move(builder)) {}

  std::shared_ptr<arrow::DataType> type_;
  std::unique_ptr<arrow::ArrayBuilder> builder_;
};

}  // namespace darkroom
