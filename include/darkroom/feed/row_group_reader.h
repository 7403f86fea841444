#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/feed/lru_cache.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// Where a row of the dataset lies among the row groups of its file.
struct RowGroupPlace {
  int64_t id = 0;           ///< Of the row group within the dataset, for caches.
  size_t file = 0;          ///< Number of the file within the dataset.
  int64_t first_row = 0;    ///< Of the group, within the file.
  int64_t num_rows = 0;     ///< Of the group.
  int64_t row_in_file = 0;  ///< The row asked for.

  int64_t row_in_group() const { return row_in_file - first_row; }
};

/// Reads whole row groups of an indexed dataset, of files without these runs of 64 rows; a few files stay open. Where the groups of a file
/// begin is kept: who keeps a group needs its file no more. Thread safety: one object,
/// one thread, except describe().
class RowGroupReader {
 public:
  /// Opens nothing yet. The dataset's store outlives the reader.
  static std::unique_ptr<RowGroupReader> create(const DatasetFiles& dataset, DatasetIndex index);

  const DatasetIndex& index() const { return index_; }
  /// Errors: kNotFound, kCorruptData (the file, or it is no longer the one that was indexed).
  Result<RowGroupPlace> locate(int64_t row);
  /// The columns of the file that holds the group.
  Result<std::shared_ptr<arrow::Schema>> schema(const RowGroupPlace& place);
  /// The whole group as batches in order. Errors: those of TableReader.
  Result<std::vector<std::shared_ptr<arrow::RecordBatch>>> read(const RowGroupPlace& place, const std::vector<std::string>& columns);
  /// "ADDRESS, row N".
  std::string describe(int64_t row) const;
  /// A file's address, for messages.
  const std::string& path(size_t file) const { return paths_[file]; }

 private:
  struct OpenFile {
    std::unique_ptr<TableReader> reader;
  };

  explicit RowGroupReader(DatasetIndex index);
  Result<std::shared_ptr<const OpenFile>> open_file(size_t file);
  /// What told a file from others when it was indexed.
  const std::string& hash_then(size_t file) const;
  Result<std::unique_ptr<TableReader>> open_aside(size_t file) const;
  Result<std::vector<int64_t>> find_first_rows(size_t file, const Location& place, TableReader& reader) const;
  Result<std::vector<std::shared_ptr<arrow::RecordBatch>>> read_group(const RowGroupPlace& place, const std::vector<std::string>& columns);

  DatasetIndex index_;
  std::vector<Location> places_;  // Of the files.
  std::vector<std::string> paths_;
  std::vector<size_t> file_of_part_;
  std::vector<int64_t> rows_of_file_;             // As indexed.
  std::vector<std::vector<int64_t>> marks_;       // Of each file that is a tar, as far as it was read.
  std::vector<std::vector<int64_t>> first_rows_;  // Of each file's row groups, then the total; empty until it was opened.
  LruCache<OpenFile> open_files_;
};

}  // namespace darkroom
