#include "download_shard.h"

#include <utility>

#include "darkroom/ingest/row_dialects.h"
#include "darkroom/ingest/value_copier.h"
#include "darkroom/tables/arrow_files.h"

namespace darkroom {
namespace {

// When the builders go to the shard; how rows are cut here does not change its bytes.
constexpr int64_t kFlushRows = 1024;
constexpr int64_t kFlushBytes = 4 << 20;

Status append_failure(const arrow::Status& status) { return from_arrow(status, "collecting a row", StatusCode::kResourceExhausted); }

}  // namespace

Result<std::unique_ptr<DownloadShard>> DownloadShard::open(JobRun& run, std::shared_ptr<DownloadItem> item, bool keep_failed) {
  std::unique_ptr<DownloadShard> shard(new DownloadShard(run, std::move(item), keep_failed));
  DARKROOM_RETURN_IF_ERROR(shard->open_columns());
  DARKROOM_ASSIGN_OR_RETURN(shard->writer_, ShardWriter::open(run.output(), shard->item_->work.part_name(), shard->schema_));
  return shard;
}

Status DownloadShard::open_columns() {
  arrow::FieldVector fields = {
      arrow::field("key", arrow::utf8(), false), arrow::field("url", arrow::utf8(), false), arrow::field("caption", arrow::utf8(), false),
      arrow::field("image", arrow::binary()),    arrow::field("width", arrow::int32()),     arrow::field("height", arrow::int32()),
      arrow::field("mime", arrow::utf8()),
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
  schema_ = arrow::schema(std::move(fields));
  return {};
}

Status DownloadShard::add(DownloadRow row) {
  const int64_t position = row.position;
  reorder_.insert(position, std::move(row));
  while (std::optional<DownloadRow> next = reorder_.take_next()) {
    DARKROOM_RETURN_IF_ERROR(write_row(*next));
  }
  if (reorder_.next_position() == item_->work.num_rows) {
    DARKROOM_RETURN_IF_ERROR(flush());
    DARKROOM_RETURN_IF_ERROR(run_.commit(item_->work, tally_, *writer_));
    item_->open_slot.release();
    is_committed_ = true;
  }
  return {};
}

Status DownloadShard::write_row(const DownloadRow& row) {
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
  pending_bytes_ += static_cast<int64_t>(row.image.size() + row.caption.size() + row.url.size());
  return pending_rows_ >= kFlushRows || pending_bytes_ >= kFlushBytes ? flush() : Status();
}

Status DownloadShard::append_own_columns(const DownloadRow& row) {
  arrow::Status status = keys_.Append(row_key(item_->work.list_row + row.position));
  status &= urls_.Append(row.url);
  status &= captions_.Append(row.caption);
  if (row.error) {
    status &= images_.AppendNull();
    status &= widths_.AppendNull();
    status &= heights_.AppendNull();
    status &= mimes_.AppendNull();
  } else {
    status &= images_.Append(row.image);
    status &= widths_.Append(row.header.width);
    status &= heights_.Append(row.header.height);
    status &= mimes_.Append(mime_type(row.header.format));
  }
  if (keep_failed_) {
    status &= row.error ? errors_.Append(row.error->name()) : errors_.AppendNull();
  }
  return status.ok() ? Status() : append_failure(status);
}

Status DownloadShard::flush() {
  if (pending_rows_ == 0) {
    return {};
  }
  std::vector<arrow::ArrayBuilder*> builders = {&keys_, &urls_, &captions_, &images_, &widths_, &heights_, &mimes_};
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
  const int64_t num_rows = std::exchange(pending_rows_, 0);
  pending_bytes_ = 0;
  return writer_->write(*arrow::RecordBatch::Make(schema_, num_rows, std::move(columns)));
}

}  // namespace darkroom
