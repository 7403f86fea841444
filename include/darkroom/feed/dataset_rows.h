#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/feed/dataset_files.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// Rows of a dataset in the order in which they are stored: files in byte order of their paths, one after another. Batches never hold rows
/// of two files, whose columns may have other types. Thread safety: one object, one thread.
class DatasetRows {
 public:
  /// Rows [first, first + count) of all, fewer where the dataset ends, with `columns` (empty: all). Opens no file yet. The dataset's stores
  /// outlive it. Errors: kInvalidArgument (a negative number).
  static Result<std::unique_ptr<DatasetRows>> open(DatasetFiles dataset, int64_t first, int64_t count, std::vector<std::string> columns,
                                                   const ReadOptions& options = {});

  /// The next batch, never empty; a null pointer after the last one. Errors: those of open_table and TableReader, which name the file.
  Result<std::shared_ptr<arrow::RecordBatch>> next();

 private:
  DatasetRows(DatasetFiles dataset, int64_t first, int64_t count, std::vector<std::string> columns, const ReadOptions& options)
      : dataset_(std::move(dataset)), columns_(std::move(columns)), options_(options), num_to_skip_(first), num_left_(count) {}
  Status open_next_file();

  const DatasetFiles dataset_;
  const std::vector<std::string> columns_;
  const ReadOptions options_;
  int64_t num_to_skip_;  // Before the first row that is asked for.
  int64_t num_left_;     // To be read.
  size_t next_file_ = 0;
  std::unique_ptr<TableReader> table_;
  std::unique_ptr<RowRange> range_;  // Of table_; null between files.
};

}  // namespace darkroom
