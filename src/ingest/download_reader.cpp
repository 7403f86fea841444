#include "download_reader.h"

#include <arrow/array.h>
#include <arrow/util/byte_size.h>

#include <tuple>
#include <utility>

#include "darkroom/core/utf8.h"
#include "darkroom/tables/bytes_column.h"

namespace darkroom {
namespace {

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

/// A list may have been made of the table's own bytes, with white space around them or text that is no UTF-8.
bool is_denied(const DenyList& list, std::string_view url, std::string_view as_stored) {
  return list.denies(url) || (as_stored != url && list.denies(as_stored));
}

/// Of a batch's memory, what each of its rows that are kept stands for.
size_t share_of_batch(const arrow::RecordBatch& batch, size_t num_kept) {
  const auto num_bytes = arrow::util::ReferencedBufferSize(batch);
  return num_bytes.ok() ? static_cast<size_t>(*num_bytes) / num_kept : 0;
}

/// Has each dictionary built here: an array does that when it is first asked for it, and the writers of two items may ask at once.
void build_dictionaries(const arrow::RecordBatch& batch) {
  for (int i = 0; i < batch.num_columns(); ++i) {
    const std::shared_ptr<arrow::Array> column = batch.column(i);  // The batch keeps it.
    if (column->type_id() == arrow::Type::DICTIONARY) {
      static_cast<const arrow::DictionaryArray&>(*column).dictionary();
    }
  }
}

}  // namespace

Status DownloadReader::read(ItemIntake<DownloadRow>& intake) {
  auto& item = static_cast<DownloadItem&>(*intake.item());
  const WorkItem& work = item.work;
  const Location place = run_.plan().input_place(work);
  DARKROOM_RETURN_IF_ERROR(rows_.seek(run_.plan(), work));
  item.table_schema = rows_.table().schema();
  DARKROOM_ASSIGN_OR_RETURN(item.columns, find_url_columns(*item.table_schema, place.uri(), options_.url_column, options_.caption_column));
  const int64_t end = work.first_row + work.num_rows;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const KeptRows kept, rows_.next(end));
    if (kept.batch == nullptr) {
      break;
    }
    DARKROOM_RETURN_IF_ERROR(read_batch(item, kept, intake));
  }
  const int64_t num_rows = rows_.finish(end);
  if (num_rows != work.num_rows) {
    return Status::corrupt_data("an input has fewer rows than when the job was started (file, want, got):", place.uri(), work.num_rows,
                                num_rows);
  }
  item.rows_filtered = work.num_rows - intake.num_pieces();
  run_.count_rows(item.rows_filtered, {});
  return {};
}

Status DownloadReader::read_batch(const DownloadItem& item, const KeptRows& kept, ItemIntake<DownloadRow>& intake) {
  const std::string& path = rows_.table().path();
  const UrlColumns& columns = item.columns;
  const auto column = [&](const std::string& name) { return BytesColumn::open(path, name, kept.batch->GetColumnByName(name)); };
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn urls, column(columns.url));
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions, column(columns.caption));
  build_dictionaries(*kept.batch);
  const size_t share = share_of_batch(*kept.batch, kept.rows.size());
  for (const int64_t i : kept.rows) {
    DownloadRow row{.position = kept.first_row + i - item.work.first_row, .table = kept.batch, .table_row = i, .table_bytes = share};
    fill_text(row, urls.at(i), captions.at(i));
    if (!row.error && rules_.denied && is_denied(*rules_.denied, row.url, *urls.at(i))) {
      row.error = RowError{.code = RowErrorCode::kDenied};
    }
    const size_t text_bytes = row.url.size() + row.caption.size();
    DARKROOM_RETURN_IF_ERROR(intake.admit(sizeof(DownloadPiece) + text_bytes + share));
    intake.count(1, static_cast<int64_t>(text_bytes));
    DARKROOM_RETURN_IF_ERROR(intake.emit(std::move(row)));
  }
  return {};
}

}  // namespace darkroom
