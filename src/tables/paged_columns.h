#pragma once

#include <arrow/array.h>
#include <arrow/io/interfaces.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/writer.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "column_layout.h"
#include "darkroom/core/result.h"
#include "page_writer.h"
#include "shard_content.h"

namespace darkroom {

/// How the columns of a shard of format version 2 come into the file.
enum class ColumnWay {
  kBytePages,    ///< Uncompressed binary: pages of our own.
  kTensorPages,  ///< Uncompressed arrow.fixed_shape_tensor of half or float: pages of our own.
  kArrow,        ///< Everything else.
};

ColumnWay find_column_way(const arrow::Field& field);

/// Writes columns through Arrow into the middle of a file that others write, too: Arrow's stream tells the file's own offsets, and what
/// Arrow writes around the columns (its first four bytes, its footer) goes nowhere. Thread safety: one object, one thread.
class ArrowColumns {
 public:
  /// REQUIRES: `content` outlives it; the schema has a column.
  static Result<std::unique_ptr<ArrowColumns>> open(const arrow::Schema& schema, std::shared_ptr<parquet::WriterProperties> properties,
                                                    ShardContent& content);
  ~ArrowColumns();

  arrow::Status begin_row_group();
  /// The next column of the row group, in the order of the schema. `parts`: its rows, joined first: our bytes must not show how rows came
  /// in.
  arrow::Status write_column(const arrow::ArrayVector& parts);
  /// No more columns; what a footer says of those that there were.
  arrow::Result<std::shared_ptr<parquet::FileMetaData>> finish();

 private:
  class Stream;
  ArrowColumns() = default;

  std::shared_ptr<Stream> stream_;  // Shared with Arrow's writer.
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

/// A row group of a shard, for the footer.
struct RowGroupExtent {
  int64_t num_rows = 0;
  std::vector<std::optional<ChunkExtent>> columns = {};  ///< A column of the schema each; nothing where Arrow wrote it.
};

/// The footer of a shard: Thrift, its length, "PAR1". `arrow_columns`: what Arrow's writer says of its columns, null when it had none.
/// Throws what Parquet's code throws.
std::string build_footer(const parquet::SchemaDescriptor& schema, const std::shared_ptr<parquet::WriterProperties>& properties,
                         std::span<const RowGroupExtent> row_groups, const parquet::FileMetaData* arrow_columns,
                         const std::shared_ptr<const arrow::KeyValueMetadata>& pairs);

}  // namespace darkroom
