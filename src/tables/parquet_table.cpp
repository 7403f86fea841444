#include "parquet_table.h"

#include <arrow/table.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "darkroom/tables/arrow_files.h"
#include "foreign_batch.h"
#include "parquet_metadata.h"
#include "parquet_statistics.h"
#include "table_columns.h"

namespace darkroom {

namespace {

constexpr int64_t kBufferBytes = 1 << 20;  // Read ahead of a column's pages, so that no column is held whole.

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) {
    leaves.push_back(field.column_index);
  }
  for (const parquet::arrow::SchemaField& child : field.children) {
    add_leaves(child, leaves);
  }
}

/// What the ranges of one file share; immutable.
struct ParquetSource {
  std::shared_ptr<const InputFile> file;
  ParquetMetadata metadata;

  const TableFooter& footer() const { return metadata.footer; }
  std::string doing() const { return "reading " + footer().path; }

  /// Runs a step of Parquet's code; what it throws on damaged bytes becomes a Status.
  Status guarded(const std::function<arrow::Status()>& step) const {
    try {
      return from_arrow(step(), doing());
    } catch (const parquet::ParquetStatusException& failure) {
      return from_arrow(failure.status(), doing());
    } catch (const std::bad_alloc&) {
      return Status::resource_exhausted(doing(), ": out of memory");
    } catch (const std::exception& failure) {
      return Status::corrupt_data(doing(), ":", failure.what());
    }
  }

  arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> open_reader() const {
    parquet::ReaderProperties properties(table_pool());
    properties.set_page_checksum_verification(true);
    properties.enable_buffered_stream();
    properties.set_buffer_size(kBufferBytes);
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(make_arrow_input(file), properties, metadata.parquet));
    return builder.memory_pool(table_pool())->properties(arrow_properties)->Build();
  }
};

class ParquetRange final : public RowRange {
 public:
  ParquetRange(std::shared_ptr<const ParquetSource> source, std::vector<int> columns, int64_t first, int64_t count,
               const ReadOptions& options)
      : source_(std::move(source)), columns_(std::move(columns)), skip_(first), left_(count), options_(options) {}

  Status open() {
    return source_->guarded([&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(reader_, source_->open_reader());
      for (const int column : columns_) {
        add_leaves(reader_->manifest().schema_fields[static_cast<size_t>(column)], leaves_);
      }
      return arrow::Status::OK();
    });
  }

  Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    DARKROOM_RETURN_IF_ERROR(source_->guarded([&] { return read_next(&batch); }));
    return batch;
  }

 private:
  const std::vector<RowGroupInfo>& groups() const { return source_->footer().row_groups; }

  arrow::Status read_next(std::shared_ptr<arrow::RecordBatch>* batch) {
    while (left_ > 0) {
      if (batches_ == nullptr) {
        if (next_group_ == groups().size()) {
          return arrow::Status::OK();
        }
        ARROW_RETURN_NOT_OK(open_group());
        continue;
      }
      std::shared_ptr<arrow::RecordBatch> whole;
      ARROW_RETURN_NOT_OK(batches_->ReadNext(&whole));
      if (whole == nullptr) {
        ARROW_RETURN_NOT_OK(close_group());
        continue;
      }
      group_rows_read_ += whole->num_rows();
      const int64_t begin = std::min(skip_, whole->num_rows());
      const int64_t count = std::min(left_, whole->num_rows() - begin);
      skip_ -= begin;
      if (count > 0) {
        left_ -= count;
        return hand_out(*whole->Slice(begin, count), batch);
      }
    }
    return arrow::Status::OK();
  }

  /// Goes to the next row group, past those that lie before the range.
  arrow::Status open_group() {
    const RowGroupInfo& group = groups()[next_group_];
    if (group.num_rows <= skip_) {
      skip_ -= group.num_rows;
      ++next_group_;
      return arrow::Status::OK();
    }
    const int64_t row_bytes = std::max<int64_t>(1, selected_bytes(next_group_) / group.num_rows);
    reader_->set_batch_size(std::clamp<int64_t>(options_.batch_bytes / row_bytes, 1, options_.max_batch_rows));
    ARROW_ASSIGN_OR_RAISE(batches_, reader_->GetRecordBatchReader({static_cast<int>(next_group_)}, leaves_));
    group_rows_read_ = 0;
    return arrow::Status::OK();
  }

  arrow::Status close_group() {
    batches_.reset();
    if (group_rows_read_ != groups()[next_group_].num_rows) {
      return arrow::Status::Invalid("row group ", next_group_, " holds ", group_rows_read_, " rows, the footer says ",
                                    groups()[next_group_].num_rows);
    }
    ++next_group_;
    return arrow::Status::OK();
  }

  int64_t selected_bytes(size_t group) const {
    const auto metadata = source_->metadata.parquet->RowGroup(static_cast<int>(group));
    const int64_t largest = std::numeric_limits<int64_t>::max() / std::max<int64_t>(1, static_cast<int64_t>(leaves_.size()));
    int64_t bytes = 0;
    for (const int leaf : leaves_) {  // A footer may claim anything.
      bytes += std::clamp<int64_t>(metadata->ColumnChunk(leaf)->total_uncompressed_size(), 0, largest);
    }
    return bytes;
  }

  arrow::Status hand_out(const arrow::RecordBatch& read, std::shared_ptr<arrow::RecordBatch>* batch) const {
    arrow::ArrayVector arrays;
    arrow::FieldVector fields;
    for (const int column : columns_) {
      const std::string& name = source_->footer().schema->field(column)->name();
      arrays.push_back(read.GetColumnByName(name));
      if (arrays.back() == nullptr) {
        return arrow::Status::Invalid("column ", name, " was not read");
      }
      fields.push_back(read.schema()->GetFieldByName(name));
    }
    *batch = arrow::RecordBatch::Make(arrow::schema(fields), read.num_rows(), arrays);
    return validate_foreign(**batch);
  }

  std::shared_ptr<const ParquetSource> source_;  // Shared with the table and its other ranges.
  std::vector<int> columns_;                     // In the order that was asked for.
  std::vector<int> leaves_;
  int64_t skip_;  // Rows still to pass over.
  int64_t left_;  // Rows still to hand out.
  ReadOptions options_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;  // Of the row group before which next_group_ stands; null between groups.
  size_t next_group_ = 0;
  int64_t group_rows_read_ = 0;
};

class ParquetTable final : public TableReader {
 public:
  explicit ParquetTable(std::shared_ptr<const ParquetSource> source) : source_(std::move(source)) {}

  const std::string& path() const override { return source_->footer().path; }
  TableFormat format() const override { return TableFormat::kParquet; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return source_->footer().schema; }
  Result<int64_t> num_rows() override { return source_->footer().num_rows; }

  Result<std::unique_ptr<RowRange>> read_rows(int64_t first, int64_t count, const std::vector<std::string>& columns,
                                              const ReadOptions& options) override {
    DARKROOM_CHECK(first >= 0 && count >= 0, "a range of rows must not be negative (first, count):", first, count);
    DARKROOM_ASSIGN_OR_RETURN(std::vector<int> places, find_columns(*schema(), columns, path()));
    auto range = std::make_unique<ParquetRange>(source_, std::move(places), first, count, options);
    DARKROOM_RETURN_IF_ERROR(range->open());
    return std::unique_ptr<RowRange>(std::move(range));
  }

  std::vector<RowGroup> row_groups(int64_t first, int64_t count, const std::vector<std::string>& columns) override {
    std::vector<RowGroup> found;
    int64_t first_row = 0;
    for (size_t group = 0; group < source_->footer().row_groups.size() && first_row - first < count; ++group) {
      const int64_t num_rows = source_->footer().row_groups[group].num_rows;
      if (first_row + num_rows > first) {
        found.push_back({first_row, read_statistics(*source_->metadata.parquet, static_cast<int>(group), columns)});
      }
      first_row += num_rows;
    }
    return found;
  }

 private:
  std::shared_ptr<const ParquetSource> source_;
};

}  // namespace

Result<std::unique_ptr<TableReader>> open_parquet_table(std::shared_ptr<const InputFile> file) {
  DARKROOM_ASSIGN_OR_RETURN(ParquetMetadata metadata, read_parquet_metadata(*file));
  auto source = std::make_shared<ParquetSource>();
  source->file = std::move(file);
  source->metadata = std::move(metadata);
  return std::unique_ptr<TableReader>(std::make_unique<ParquetTable>(std::move(source)));
}

}  // namespace darkroom
