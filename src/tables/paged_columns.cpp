#include "paged_columns.h"

#include <arrow/array/concatenate.h>
#include <arrow/extension/fixed_shape_tensor.h>
#include <arrow/table.h>
#include <arrow/util/checked_cast.h>
#include <parquet/size_statistics.h>
#include <parquet/statistics.h>

#include <cstring>
#include <map>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/tables/arrow_files.h"

namespace darkroom {

class ArrowColumns::Stream final : public arrow::io::OutputStream {
 public:
  explicit Stream(ShardContent& content) : content_(content) {}

  arrow::Status Write(const void* data, int64_t num_bytes) override {
    if (!passes_) {
      return arrow::Status::OK();
    }
    return to_arrow(content_.write(std::span(static_cast<const std::byte*>(data), static_cast<size_t>(num_bytes))));
  }
  arrow::Status Close() override {
    is_closed_ = true;
    return arrow::Status::OK();
  }
  /// Arrow begins a file only where one begins.
  arrow::Result<int64_t> Tell() const override { return passes_ ? content_.num_bytes() : 0; }
  bool closed() const override { return is_closed_; }

  void set_passing(bool passes) { passes_ = passes; }

 private:
  ShardContent& content_;
  bool passes_ = false;
  bool is_closed_ = false;
};

namespace {

using ColumnChunkBuilder = parquet::ColumnChunkMetaDataBuilder;
using EncodingCounts = std::map<parquet::Encoding::type, int32_t>;

/// A chunk that we wrote. Returns its bytes before compression.
int64_t describe_own_chunk(const ChunkExtent& chunk, ColumnChunkBuilder& out) {
  out.Finish(chunk.num_values, /*dictionary_page_offset=*/0, /*index_page_offset=*/-1, chunk.first_page, chunk.num_bytes, chunk.num_bytes,
             /*has_dictionary=*/false, /*dictionary_fallback=*/false, {}, {{parquet::Encoding::PLAIN, chunk.num_pages}});
  return chunk.num_bytes;
}

/// A chunk as Arrow's writer described it. Returns its bytes before compression.
int64_t copy_chunk(const parquet::ColumnChunkMetaData& chunk, ColumnChunkBuilder& out) {
  if (const auto statistics = chunk.encoded_statistics()) {
    parquet::EncodedStatistics copy = *statistics;
    copy.set_is_signed(out.descr()->sort_order() == parquet::SortOrder::SIGNED);
    out.SetStatistics(copy);
  }
  if (const auto sizes = chunk.size_statistics()) {
    out.SetSizeStatistics(*sizes);
  }
  DARKROOM_CHECK(!chunk.has_dictionary_page(), "a column of a shard has a dictionary (column):", out.descr()->name());
  EncodingCounts encodings;
  for (const parquet::PageEncodingStats& pages : chunk.encoding_stats()) {
    encodings[pages.encoding] += pages.count;
  }
  out.Finish(chunk.num_values(), /*dictionary_page_offset=*/0, /*index_page_offset=*/-1, chunk.data_page_offset(),
             chunk.total_compressed_size(), chunk.total_uncompressed_size(), /*has_dictionary=*/false, /*dictionary_fallback=*/false, {},
             encodings);
  return chunk.total_uncompressed_size();
}

}  // namespace

ColumnWay find_column_way(const arrow::Field& field) {
  const arrow::DataType& type = *field.type();
  if (type.id() == arrow::Type::BINARY) {
    return ColumnWay::kBytePages;
  }
  const auto* tensor = dynamic_cast<const arrow::extension::FixedShapeTensorType*>(&type);
  const bool has_floats =
      tensor != nullptr && (tensor->value_type()->id() == arrow::Type::HALF_FLOAT || tensor->value_type()->id() == arrow::Type::FLOAT);
  return has_floats ? ColumnWay::kTensorPages : ColumnWay::kArrow;
}

ArrowColumns::~ArrowColumns() { stream_->set_passing(false); }  // Parquet's writer writes a footer when it dies, too.

Result<std::unique_ptr<ArrowColumns>> ArrowColumns::open(const arrow::Schema& schema, std::shared_ptr<parquet::WriterProperties> properties,
                                                         ShardContent& content) {
  std::unique_ptr<ArrowColumns> columns(new ArrowColumns());
  columns->stream_ = std::make_shared<Stream>(content);
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().set_use_threads(false)->build();
  auto writer = parquet::arrow::FileWriter::Open(schema, table_pool(), columns->stream_, std::move(properties), arrow_properties);
  DARKROOM_RETURN_IF_ARROW_ERROR(writer.status(), "laying out a shard");
  columns->writer_ = *std::move(writer);
  columns->stream_->set_passing(true);
  return columns;
}

arrow::Status ArrowColumns::begin_row_group() { return writer_->NewRowGroup(); }

arrow::Status ArrowColumns::write_column(const arrow::ArrayVector& parts) {
  ARROW_ASSIGN_OR_RAISE(const std::shared_ptr<arrow::Array> whole, arrow::Concatenate(parts, table_pool()));
  return writer_->WriteColumnChunk(cut_into_pieces(whole));
}

arrow::Result<std::shared_ptr<parquet::FileMetaData>> ArrowColumns::finish() {
  stream_->set_passing(false);
  ARROW_RETURN_NOT_OK(writer_->Close());
  return writer_->metadata();
}

std::string build_footer(const parquet::SchemaDescriptor& schema, const std::shared_ptr<parquet::WriterProperties>& properties,
                         std::span<const RowGroupExtent> row_groups, const parquet::FileMetaData* arrow_columns,
                         const std::shared_ptr<const arrow::KeyValueMetadata>& pairs) {
  const auto builder = parquet::FileMetaDataBuilder::Make(&schema, properties);
  for (size_t number = 0; number < row_groups.size(); ++number) {
    parquet::RowGroupMetaDataBuilder* group = builder->AppendRowGroup();
    group->set_num_rows(row_groups[number].num_rows);
    const auto arrow_group = arrow_columns != nullptr ? arrow_columns->RowGroup(static_cast<int>(number)) : nullptr;
    int64_t num_bytes = 0;
    int num_copied = 0;
    for (int leaf = 0; leaf < schema.num_columns(); ++leaf) {
      const int field = schema.group_node()->FieldIndex(*schema.GetColumnRoot(leaf));
      const std::optional<ChunkExtent>& own = row_groups[number].columns[static_cast<size_t>(field)];
      ColumnChunkBuilder& chunk = *group->NextColumnChunk();
      num_bytes += own ? describe_own_chunk(*own, chunk) : copy_chunk(*arrow_group->ColumnChunk(num_copied++), chunk);
    }
    group->Finish(num_bytes);
  }
  std::string footer = builder->Finish(pairs)->SerializeToString();
  const auto thrift_bytes = static_cast<uint32_t>(footer.size());
  footer.append(reinterpret_cast<const char*>(&thrift_bytes), sizeof thrift_bytes);
  return footer + "PAR1";
}

}  // namespace darkroom
