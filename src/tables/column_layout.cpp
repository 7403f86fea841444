#include "column_layout.h"

#include <arrow/table.h>
#include <parquet/arrow/schema.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "darkroom/tables/arrow_files.h"
#include "row_bytes.h"

namespace darkroom {

namespace {

bool holds_binary(const arrow::DataType& type) {
  return type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_BINARY ||
         (type.id() == arrow::Type::STRUCT &&
          std::any_of(type.fields().begin(), type.fields().end(), [](const auto& field) { return holds_binary(*field->type()); }));
}

bool holds_list(const arrow::DataType& type) { return type.id() == arrow::Type::EXTENSION || arrow::is_list_like(type.id()); }

}  // namespace

bool is_bulk_type(const arrow::DataType& type) { return holds_binary(type) || holds_list(type); }

Status check_columns(const arrow::Schema& schema) {
  for (const std::string& name : schema.field_names()) {
    if (schema.GetFieldIndex(name) < 0) {
      return Status::invalid_argument("two columns of a shard have one name (column):", name);
    }
  }
  return Status::ok();
}

Result<std::shared_ptr<parquet::WriterProperties>> make_shard_properties(const arrow::Schema& schema, int zstd_level,
                                                                         const char* created_by) {
  std::shared_ptr<parquet::SchemaDescriptor> columns;
  DARKROOM_RETURN_IF_ARROW_ERROR(parquet::arrow::ToParquetSchema(&schema, *parquet::default_writer_properties(), &columns),
                                 "laying out a shard");
  parquet::WriterProperties::Builder builder;
  builder.memory_pool(table_pool())
      ->created_by(created_by)
      ->enable_page_checksum()
      ->disable_dictionary()
      ->disable_write_page_index()  // It would lie between content and footer, and hash as neither.
      ->max_row_group_length(std::numeric_limits<int64_t>::max());
  for (int i = 0; i < columns->num_columns(); ++i) {
    const std::shared_ptr<parquet::schema::ColumnPath> path = columns->Column(i)->path();
    const arrow::Field& field = *schema.GetFieldByName(path->ToDotVector().front());
    if (is_bulk_type(*field.type())) {
      builder.disable_statistics(path);
    } else {
      builder.compression(path, arrow::Compression::ZSTD)->compression_level(path, zstd_level);
    }
  }
  return builder.build();
}

std::shared_ptr<arrow::ChunkedArray> cut_into_pieces(const std::shared_ptr<arrow::Array>& column) {
  constexpr int64_t kPieceBytes = 1 << 20;
  std::vector<int64_t> sizes(static_cast<size_t>(column->length()));
  add_row_bytes(*column, sizes);
  const int64_t num_bytes = std::accumulate(sizes.begin(), sizes.end(), int64_t{1});
  const int64_t piece_rows = std::max<int64_t>(1, column->length() * kPieceBytes / num_bytes);
  arrow::ArrayVector pieces;
  for (int64_t row = 0; row < column->length(); row += piece_rows) {
    pieces.push_back(column->Slice(row, piece_rows));
  }
  return std::make_shared<arrow::ChunkedArray>(pieces, column->type());
}

}  // namespace darkroom
