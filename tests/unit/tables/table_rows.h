#pragma once

#include <arrow/api.h>

#include <optional>
#include <string>
#include <vector>

#include "darkroom/tables/table_reader.h"

namespace darkroom {

inline std::shared_ptr<arrow::Array> strings(const std::vector<std::optional<std::string>>& values) {
  arrow::StringBuilder builder;
  for (const auto& value : values) {
    EXPECT_TRUE((value ? builder.Append(*value) : builder.AppendNull()).ok());
  }
  return builder.Finish().ValueOrDie();
}

inline std::shared_ptr<arrow::Array> blobs(const std::vector<std::string>& values) {
  arrow::BinaryBuilder builder;
  for (const std::string& value : values) {
    EXPECT_TRUE(builder.Append(value).ok());
  }
  return builder.Finish().ValueOrDie();
}

inline std::shared_ptr<arrow::Array> integers(const std::vector<int32_t>& values) {
  arrow::Int32Builder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return builder.Finish().ValueOrDie();
}

inline Status put_file(FileSystem& files, const std::string& path, std::string_view text) { return write_file_atomic(files, path, text); }

/// All rows of a range in one batch; a failure's status otherwise.
inline Result<std::shared_ptr<arrow::RecordBatch>> read_all(RowRange& range) {
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(auto batch, range.next());
    if (batch == nullptr) {
      break;
    }
    EXPECT_GT(batch->num_rows(), 0);
    batches.push_back(batch);
  }
  if (batches.empty()) {
    return std::shared_ptr<arrow::RecordBatch>();
  }
  return arrow::ConcatenateRecordBatches(batches).ValueOrDie();
}

inline Result<std::shared_ptr<arrow::RecordBatch>> read_range(TableReader& table, int64_t first, int64_t count,
                                                              const std::vector<std::string>& columns = {},
                                                              const ReadOptions& options = {}) {
  DARKROOM_ASSIGN_OR_RETURN(auto range, table.read_rows(first, count, columns, options));
  return read_all(*range);
}

/// A column of text as strings, "<null>" for null.
inline std::vector<std::string> texts(const std::shared_ptr<arrow::RecordBatch>& batch, const std::string& column) {
  std::vector<std::string> values;
  if (batch != nullptr) {
    const auto& array = static_cast<const arrow::BinaryArray&>(*batch->GetColumnByName(column));
    for (int64_t i = 0; i < array.length(); ++i) {
      values.push_back(array.IsNull(i) ? "<null>" : array.GetString(i));
    }
  }
  return values;
}

}  // namespace darkroom
