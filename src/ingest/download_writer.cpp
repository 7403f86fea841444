#include "download_writer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "darkroom/ingest/row_dialects.h"
#include "darkroom/tables/arrow_files.h"

namespace darkroom {
namespace {

// When the builders go to the shard; how rows are cut here does not change its bytes.
constexpr size_t kFlushRows = 1024;
constexpr size_t kFlushBytes = 1 << 20;
constexpr const char* kImageColumn = "image";

Status append_failure(const arrow::Status& status) { return from_arrow(status, "collecting a row", StatusCode::kResourceExhausted); }

}  // namespace

Result<std::unique_ptr<ItemWriter<DownloadRow>>> DownloadWriter::open(JobRun& run, std::shared_ptr<DownloadItem> item, bool keep_failed) {
  std::unique_ptr<DownloadWriter> made(new DownloadWriter(run, std::move(item), keep_failed));
  DARKROOM_RETURN_IF_ERROR(made->open_columns());
  const Location& output = run.output();
  DARKROOM_ASSIGN_OR_RETURN(auto object, output.store->begin_object(output.path, made->item_->work.part_name()));
  DARKROOM_ASSIGN_OR_RETURN(made->writer_, PagedShardWriter::open(std::move(object), made->schema_, {.streamed_column = kImageColumn}));
  if (made->item_->base) {
    DARKROOM_RETURN_IF_ERROR(made->open_base());
  }
  return std::unique_ptr<ItemWriter<DownloadRow>>(std::move(made));
}

Status DownloadWriter::open_base() {
  const BasePart& base = *item_->base;
  DARKROOM_ASSIGN_OR_RETURN(base_, BaseRows::open(base, {}, item_->work, kBaseReadAheadBytes));
  return base_->schema()->Equals(*schema_, /*check_metadata=*/false)
             ? Status::ok()
             : Status::corrupt_data("a part of which rows are redone has other columns than its job (part, columns, of the job):",
                                    base.place.uri(), base_->schema()->ToString(), schema_->ToString());
}

Status DownloadWriter::open_columns() {
  arrow::FieldVector fields = {
      arrow::field("key", arrow::utf8(), false), arrow::field("url", arrow::utf8(), false), arrow::field("caption", arrow::utf8(), false),
      arrow::field("width", arrow::int32()),     arrow::field("height", arrow::int32()),    arrow::field("mime", arrow::utf8()),
  };
  if (keep_failed_) {
    fields.push_back(arrow::field("error", arrow::utf8()));
  }
  const UrlColumns& columns = item_->columns;
  for (size_t i = 0; i < columns.metadata.size(); ++i) {
    const auto field = item_->table_schema->GetFieldByName(columns.metadata[i]);
    DARKROOM_ASSIGN_OR_RETURN(ValueCopier copier, ValueCopier::create(columns.metadata[i], field->type()));
    fields.push_back(arrow::field(columns.output_names[i], copier.type()));
    metadata_.push_back(std::move(copier));
  }
  batch_schema_ = arrow::schema(fields);
  fields.insert(fields.begin(), arrow::field(kImageColumn, arrow::binary()));
  schema_ = arrow::schema(std::move(fields));
  return {};
}

Status DownloadWriter::add(int64_t /*position*/, DownloadRow row) {
  DARKROOM_RETURN_IF_ERROR(copy_before(row.position));
  ++tally_.rows_in;
  tally_.num_invalid_captions += row.caption_was_invalid ? 1 : 0;
  run_.count_row(row.error ? &*row.error : nullptr);
  if (row.error) {
    ++tally_.rows_by_error[row.error->name()];
    tally_.failed_rows[row.error->name()].push_back(row.position);
    if (!keep_failed_) {
      return {};
    }
  } else {
    ++tally_.rows_out;
  }
  DARKROOM_RETURN_IF_ERROR(append_own_columns(row));
  for (size_t i = 0; i < metadata_.size(); ++i) {
    DARKROOM_RETURN_IF_ERROR(metadata_[i].append(*row.table->GetColumnByName(item_->columns.metadata[i]), row.table_row));
  }
  ++pending_rows_;
  pending_bytes_ += row.image.size() + row.caption.size() + row.url.size() + row.table_bytes;
  images_.push_back({.bytes = row.error ? std::nullopt : std::optional(std::move(row.image))});
  return pending_rows_ >= kFlushRows || pending_bytes_ >= kFlushBytes ? flush() : Status();
}

Status DownloadWriter::append_own_columns(const DownloadRow& row) {
  arrow::Status status = keys_.Append(row_key(item_->work.list_row + row.position));
  status &= urls_.Append(row.url);
  status &= captions_.Append(row.caption);
  if (row.error) {
    status &= widths_.AppendNull();
    status &= heights_.AppendNull();
    status &= mimes_.AppendNull();
  } else {
    status &= widths_.Append(row.header.width);
    status &= heights_.Append(row.header.height);
    status &= mimes_.Append(mime_type(row.header.format));
  }
  if (keep_failed_) {
    status &= row.error ? errors_.Append(row.error->name()) : errors_.AppendNull();
  }
  return status.ok() ? Status() : append_failure(status);
}

Status DownloadWriter::flush() {
  if (pending_rows_ == 0) {
    return {};
  }
  std::vector<arrow::ArrayBuilder*> builders = {&keys_, &urls_, &captions_, &widths_, &heights_, &mimes_};
  if (keep_failed_) {
    builders.push_back(&errors_);
  }
  arrow::ArrayVector columns;
  for (arrow::ArrayBuilder* builder : builders) {
    auto column = builder->Finish();
    if (!column.ok()) {
      return append_failure(column.status());
    }
    columns.push_back(*std::move(column));
  }
  for (ValueCopier& copier : metadata_) {
    DARKROOM_ASSIGN_OR_RETURN(auto column, copier.finish());
    columns.push_back(std::move(column));
  }
  std::vector<BorrowedValue> borrowed;
  for (size_t i = images_.size() - pending_rows_; i < images_.size(); ++i) {
    const std::optional<std::string>& bytes = images_[i].bytes;
    borrowed.push_back(bytes ? BorrowedValue(std::as_bytes(std::span(*bytes))) : std::nullopt);
  }
  const auto num_rows = static_cast<int64_t>(std::exchange(pending_rows_, 0));
  pending_bytes_ = 0;
  return write(*arrow::RecordBatch::Make(batch_schema_, num_rows, std::move(columns)), borrowed);
}

Status DownloadWriter::write(const arrow::RecordBatch& others, std::span<const BorrowedValue> images) {
  DARKROOM_RETURN_IF_ERROR(writer_->write(others, images));
  for (; first_image_ < writer_->num_rows_taken(); ++first_image_) {
    images_.pop_front();
  }
  return {};
}

Status DownloadWriter::copy_before(int64_t position) {
  while (base_ != nullptr) {
    DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<arrow::RecordBatch> rows, base_->next(position));
    if (rows == nullptr) {
      break;
    }
    DARKROOM_RETURN_IF_ERROR(flush());
    DARKROOM_RETURN_IF_ERROR(copy(std::move(rows)));
  }
  return {};
}

/// Rows with all columns, the image first.
Status DownloadWriter::copy(std::shared_ptr<arrow::RecordBatch> rows) {
  const std::shared_ptr<arrow::Array> column = rows->column(0);
  const auto& pictures = static_cast<const arrow::BinaryArray&>(*column);
  std::vector<BorrowedValue> borrowed;
  for (int64_t i = 0; i < rows->num_rows(); ++i) {
    borrowed.push_back(pictures.IsNull(i) ? std::nullopt : BorrowedValue(std::as_bytes(std::span(pictures.GetView(i)))));
    images_.push_back({.base = rows});
  }
  const arrow::ArrayVector columns(rows->columns().begin() + 1, rows->columns().end());
  return write(*arrow::RecordBatch::Make(batch_schema_, rows->num_rows(), columns), borrowed);
}

/// Copies what is left of the base and makes the tally that of the whole item.
Status DownloadWriter::end_base() {
  DARKROOM_RETURN_IF_ERROR(copy_before(item_->work.whole_rows));
  ItemTally whole = item_->base->kept;
  const int64_t num_rows = keep_failed_ ? whole.rows_in : whole.rows_out;
  if (base_->num_rows() != num_rows) {
    return Status::corrupt_data("a part whose failed rows are redone has another number of rows than it counts (part, counted, there):",
                                item_->base->place.uri(), num_rows, base_->num_rows());
  }
  tally_.num_invalid_captions = 0;  // Counted when the item was first made.
  whole.add(tally_);
  for (auto& [code, rows] : whole.failed_rows) {
    std::ranges::sort(rows);
  }
  tally_ = std::move(whole);
  return {};
}

Result<std::unique_ptr<FinishedItem>> DownloadWriter::finish() {
  if (base_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(end_base());
  } else {
    tally_.rows_filtered = item_->rows_filtered;
  }
  DARKROOM_RETURN_IF_ERROR(flush());
  DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, writer_->finish(run_.plan().footer_of(item_->work, tally_)));
  return std::unique_ptr<FinishedItem>(std::make_unique<FinishedPart>(std::move(shard), std::move(tally_)));
}

}  // namespace darkroom
