#include "parquet_table.h"

#include <arrow/table.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <deque>
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

  /// `input`: the file, or what it is read through.
  arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> open_reader(std::shared_ptr<const InputFile> input) const {
    parquet::ReaderProperties properties(table_pool());
    properties.set_page_checksum_verification(true);
    properties.enable_buffered_stream();
    properties.set_buffer_size(kBufferBytes);
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(make_arrow_input(std::move(input)), properties, metadata.parquet));
    return builder.memory_pool(table_pool())->properties(arrow_properties)->Build();
  }
};

/// The bytes of a column in a row group, as far as the footer is right.
ByteRange chunk_range(const parquet::ColumnChunkMetaData& chunk) {
  const bool has_dictionary = chunk.has_dictionary_page() && chunk.dictionary_page_offset() > 0;
  const int64_t first_data = chunk.data_page_offset();
  return {.offset = has_dictionary ? std::min(chunk.dictionary_page_offset(), first_data) : first_data,
          .num_bytes = chunk.total_compressed_size()};
}

/// The file as Parquet's code reads it: what a page that is larger than its buffer takes is told before it is read
/// (ReadOptions::hold_pages). A page is in memory as it was read and decompressed, at about the same size. Thread safety: one thread.
class PageReads final : public InputFile {
 public:
  PageReads(std::shared_ptr<const InputFile> file, std::function<Status(int64_t)> hold) : file_(std::move(file)), hold_(std::move(hold)) {}
  ~PageReads() override {
    if (held_ > 0) {
      (void)hold_(0);  // Giving back does not fail.
    }
  }

  const std::string& path() const override { return file_->path(); }
  int64_t size_bytes() const override { return file_->size_bytes(); }
  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
    const auto num_bytes = static_cast<int64_t>(out.size());
    if (num_bytes > kBufferBytes) {
      DARKROOM_RETURN_IF_ERROR(take_page(offset, num_bytes));
    }
    return file_->read_at(offset, out);
  }
  /// Other columns are read from now on, and of those before nothing is held any longer.
  Status begin(std::vector<ByteRange> columns) {
    columns_ = std::move(columns);
    largest_.assign(columns_.size(), 0);
    return std::exchange(held_, 0) > 0 ? hold_(0) : Status::ok();
  }

 private:
  /// The beginning of a page may be in the buffer already.
  Status take_page(int64_t offset, int64_t num_bytes) const {
    const int64_t page_bytes = num_bytes + kBufferBytes;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const int64_t within = offset - columns_[i].offset;
      if (within >= 0 && within < columns_[i].num_bytes && page_bytes > largest_[i]) {
        held_ += 2 * (page_bytes - std::exchange(largest_[i], page_bytes));
        return hold_(held_);
      }
    }
    return Status::ok();
  }

  const std::shared_ptr<const InputFile> file_;  // Shared with the table and its other ranges.
  const std::function<Status(int64_t)> hold_;
  std::vector<ByteRange> columns_;
  mutable std::vector<int64_t> largest_;  // Page of each column.
  mutable int64_t held_ = 0;
};

class ParquetRange final : public RowRange {
 public:
  ParquetRange(std::shared_ptr<const ParquetSource> source, std::vector<int> columns, int64_t first, int64_t count,
               const ReadOptions& options)
      : source_(std::move(source)), columns_(std::move(columns)), skip_(first), left_(count), options_(options) {}

  Status open() {
    return source_->guarded([&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(reader_, source_->open_reader(input()));
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

  std::shared_ptr<const InputFile> input() {
    std::shared_ptr<const InputFile> file = source_->file;
    if (file->is_remote() && options_.read_ahead_bytes > 0) {
      ahead_ = std::make_shared<ReadAhead>(std::move(file), options_.read_ahead_bytes);
      expected_.skip = skip_;
      expected_.left = left_;
      file = ahead_;
    }
    if (options_.hold_pages) {
      pages_ = std::make_shared<PageReads>(std::move(file), options_.hold_pages);
      file = pages_;
    }
    return file;
  }

  std::vector<ByteRange> chunk_ranges(size_t group) const {
    const auto metadata = source_->metadata.parquet->RowGroup(static_cast<int>(group));
    std::vector<ByteRange> ranges;
    for (const int leaf : leaves_) {
      ranges.push_back(chunk_range(*metadata->ColumnChunk(leaf)));
    }
    return ranges;
  }

  /// Of a row group the columns' beginnings that hold its wanted rows, as far as they are of one size.
  void expect_group(size_t group) {
    const int64_t num_rows = groups()[group].num_rows;
    const int64_t skipped = std::min(expected_.skip, num_rows);
    const int64_t wanted = std::min(expected_.left, num_rows - skipped);
    expected_.skip -= skipped;
    expected_.left -= wanted;
    if (wanted == 0) {
      return;
    }
    std::vector<ByteRange> ranges = chunk_ranges(group);
    const double share = static_cast<double>(skipped + wanted) / static_cast<double>(num_rows);
    for (ByteRange& range : ranges) {
      const auto read = static_cast<int64_t>(share * static_cast<double>(range.num_bytes)) / kBufferBytes + 1;
      range.num_bytes = share < 1 ? std::min(range.num_bytes, read * kBufferBytes) : range.num_bytes;
    }
    const int64_t num_batches = (skipped + wanted + batch_rows(group) - 1) / batch_rows(group);
    expected_.numbers.push_back(ahead_->expect(ranges, num_batches));
  }

  /// The row group that is read, and those behind it that come soon.
  void expect_ahead() {
    while (ahead_ != nullptr && expected_.left > 0 && expected_.next_group < groups().size() &&
           (expected_.next_group <= next_group_ || ahead_->num_bytes_planned() < options_.read_ahead_bytes)) {
      expect_group(expected_.next_group++);
    }
  }

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
      expect_ahead();
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
    expect_ahead();
    if (pages_ != nullptr) {
      ARROW_RETURN_NOT_OK(to_arrow(pages_->begin(chunk_ranges(next_group_))));
    }
    reader_->set_batch_size(batch_rows(next_group_));
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
    if (ahead_ != nullptr) {
      ahead_->forget(expected_.numbers.front());
      expected_.numbers.pop_front();
    }
    return pages_ == nullptr ? arrow::Status::OK() : to_arrow(pages_->begin({}));
  }

  int64_t batch_rows(size_t group) const {
    const int64_t row_bytes = std::max<int64_t>(1, selected_bytes(group) / groups()[group].num_rows);
    return std::clamp<int64_t>(options_.batch_bytes / row_bytes, 1, options_.max_batch_rows);
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
  std::shared_ptr<ReadAhead> ahead_;  // Of a remote file; shared with Arrow's reader, as the next.
  std::shared_ptr<PageReads> pages_;  // Where somebody asks for them.
  /// What ahead_ was told.
  struct {
    int64_t skip = 0;  // As skip_ and left_, before next_group.
    int64_t left = 0;
    size_t next_group = 0;
    std::deque<int64_t> numbers = {};  // Of the row groups that are not closed yet.
  } expected_;
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
