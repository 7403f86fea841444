#include "download_source.h"

#include <utility>

#include "darkroom/core/utf8.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/tables/bytes_column.h"

namespace darkroom {
namespace {

// What a row takes at the door; corrected when its body has arrived.
constexpr size_t kExpectedRowBytes = 256 << 10;

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

void fill_text(DownloadRow& row, std::optional<std::string_view> url, std::optional<std::string_view> caption) {
  row.url = replace_invalid_utf8(trim(url.value_or(""))).first;
  std::tie(row.caption, row.caption_was_invalid) = replace_invalid_utf8(caption.value_or(""));
  if (row.url.empty()) {
    row.error = RowError{.code = RowErrorCode::kBadUrl, .detail = "no URL"};
  } else if (is_blank(row.caption)) {
    row.error = RowError{.code = RowErrorCode::kEmptyCaption};
  }
}

}  // namespace

Status DownloadSource::read_all(const Consumer& consume, Emitter<DownloadRow>& out) {
  while (true) {
    auto slot = out.waiting([&] { return open_items_.acquire(1, out.stop()); });
    if (!slot) {
      return Status::cancelled("stopped before the next item");
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<WorkItem> work, out.waiting([&] { return run_.take_item(out.stop()); }));
    if (!work) {
      return {};
    }
    auto item = std::make_shared<DownloadItem>();
    item->work = *work;
    item->open_slot = *std::move(slot);
    DARKROOM_RETURN_IF_ERROR(read_item(item, consume, out));
  }
}

Status DownloadSource::read_item(const std::shared_ptr<DownloadItem>& item, const Consumer& consume, Emitter<DownloadRow>& out) {
  const WorkItem& work = item->work;
  const std::string& path = run_.input_of(work).path;
  if (table_ == nullptr || table_->path() != path) {
    DARKROOM_ASSIGN_OR_RETURN(table_, open_table(run_.files(), path));
  }
  item->table_schema = table_->schema();
  DARKROOM_ASSIGN_OR_RETURN(item->columns, find_url_columns(*table_->schema(), path, options_.url_column, options_.caption_column));
  DARKROOM_ASSIGN_OR_RETURN(auto rows, table_->read_rows(work.first_row, work.num_rows, {}));
  int64_t position = 0;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next());
    if (batch == nullptr) {
      break;
    }
    DARKROOM_RETURN_IF_ERROR(read_batch(item, batch, position, consume, out));
    position += batch->num_rows();
  }
  if (position != work.num_rows) {
    return Status::corrupt_data("an input has fewer rows than when the job was started (file, want, got):", path, work.num_rows, position);
  }
  return {};
}

Status DownloadSource::read_batch(const std::shared_ptr<DownloadItem>& item, const std::shared_ptr<arrow::RecordBatch>& batch,
                                  int64_t first_position, const Consumer& consume, Emitter<DownloadRow>& out) {
  const std::string& path = run_.input_of(item->work).path;
  const UrlColumns& columns = item->columns;
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn urls, BytesColumn::open(path, columns.url, batch->GetColumnByName(columns.url)));
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions, BytesColumn::open(path, columns.caption, batch->GetColumnByName(columns.caption)));
  for (int64_t i = 0; i < batch->num_rows(); ++i) {
    DownloadRow row{.item = item, .position = first_position + i, .table = batch, .table_row = i};
    fill_text(row, urls.at(i), captions.at(i));
    const size_t expected_bytes = row.error ? row.caption.size() : kExpectedRowBytes;
    auto lease = out.waiting([&] { return rows_.acquire(expected_bytes, out.stop()); });
    if (!lease) {
      return Status::cancelled("stopped in item", item->work.number);
    }
    row.lease = *std::move(lease);
    DARKROOM_RETURN_IF_ERROR(consume(std::move(row)));
  }
  return {};
}

}  // namespace darkroom
