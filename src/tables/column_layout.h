#pragma once

#include <arrow/array.h>
#include <arrow/type.h>
#include <parquet/properties.h>

#include <memory>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/tables/paged_shard_writer.h"

namespace darkroom {

// How the columns of a shard are written (docs/formats/parquet.md).

/// Whether a column's values are bytes or lists: uncompressed, and without statistics.
bool is_bulk_type(const arrow::DataType& type);

/// kInvalidArgument for two columns of one name.
Status check_columns(const arrow::Schema& schema);

/// `created_by`: the version of the format, which stands in the file.
Result<std::shared_ptr<parquet::WriterProperties>> make_shard_properties(const arrow::Schema& schema, int zstd_level,
                                                                         const char* created_by);

/// Cuts a column of a row group into pieces of about a page. Parquet spends up to eight times a piece while it writes
/// it, and looks at a page's size where a piece ends: so the cuts must depend on the values alone.
std::shared_ptr<arrow::ChunkedArray> cut_into_pieces(const std::shared_ptr<arrow::Array>& column);

}  // namespace darkroom
