#pragma once

#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/core/utf8.h"

namespace darkroom {

/// Which columns of a URL table hold the URL and the caption, and which others are passed through.
struct UrlColumns {
  std::string url;
  std::string caption;
  std::vector<std::string> metadata;  ///< All other columns, in the table's order.
  std::vector<std::string>
      output_names;  ///< Their names in the image dataset: one that collides with ours (any letter case) gets `input_` before it.
};

/// Finds them by the names of docs/formats/image_dataset.md, or takes the names given (empty: automatic).
/// Errors: kNotFound naming the table, what was looked for and the columns that exist.
Result<UrlColumns> find_url_columns(const arrow::Schema& schema, const std::string& path, const std::string& url_column,
                                    const std::string& caption_column);

/// Which columns of an image dataset hold what process needs.
struct ImageColumns {
  std::string image;  ///< Binary, or a struct with a binary field `bytes` as Hugging Face writes it.
  std::string caption;
  std::string key;  ///< Empty: rows are named by their number in the pinned list.
};

/// Finds them by the accepted names. Errors: kNotFound as above; kFailedPrecondition (an image column of another type).
Result<ImageColumns> find_image_columns(const arrow::Schema& schema, const std::string& path);

/// A row's value of a text or binary column (string, binary, their large forms, or a dictionary of these): the bytes as stored,
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

/// Whether there is nothing but ASCII white space: an empty caption.
bool is_blank(std::string_view text);

/// Copies single values of any column into a new one: dictionaries are resolved, invalid UTF-8 in text is replaced.
class ValueCopier {
 public:
  /// Errors: kFailedPrecondition for a type that Arrow cannot build.
  static Result<ValueCopier> create(const std::string& name, const std::shared_ptr<arrow::DataType>& type);
  /// The type of what comes out: the dictionary's value type, else the column's own.
  const std::shared_ptr<arrow::DataType>& type() const { return type_; }
  Status append(const arrow::Array& array, int64_t row);
  Result<std::shared_ptr<arrow::Array>> finish();

 private:
  ValueCopier(std::shared_ptr<arrow::DataType> type, std::unique_ptr<arrow::ArrayBuilder> builder)
      : type_(std::move(type)), builder_(std::move(builder)) {}

  std::shared_ptr<arrow::DataType> type_;
  std::unique_ptr<arrow::ArrayBuilder> builder_;
};

}  // namespace darkroom
