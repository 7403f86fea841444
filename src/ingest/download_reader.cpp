#include "download_reader.h"

#include <arrow/array.h>
#include <arrow/util/byte_size.h>

#include <algorithm>
#include <utility>

#include "darkroom/tables/bytes_column.h"
#include "row_text.h"

namespace darkroom {
namespace {

/// Of a batch's memory, what each of its rows that are kept stands for.
size_t share_of_batch(const arrow::RecordBatch& batch, size_t num_kept) {
  const auto num_bytes = arrow::util::ReferencedBufferSize(batch);  // Which does not know views of text.
  return static_cast<size_t>(num_bytes.ok() ? *num_bytes : arrow::util::TotalBufferSize(batch)) / num_kept;
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
  const int64_t num_malformed = rows_.num_malformed_rows();
  item.table_schema = rows_.table().schema();
  DARKROOM_ASSIGN_OR_RETURN(item.columns, find_url_columns(*item.table_schema, place.uri(), options_.url_column, options_.caption_column));
  if (work.generation > 0) {
    DARKROOM_ASSIGN_OR_RETURN(item.base, run_.plan().find_base(work));
  }
  const int64_t wanted = work.generation > 0 ? work.whole_rows : work.num_rows;
  const int64_t end = work.first_row + wanted;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const KeptRows kept, rows_.next(end));
    if (kept.batch == nullptr) {
      break;
    }
    DARKROOM_RETURN_IF_ERROR(read_batch(item, kept, intake));
  }
  count_malformed(place.uri(), num_malformed);
  const int64_t num_rows = rows_.finish(end);
  if (num_rows != wanted) {
    return Status::corrupt_data("an input has fewer rows than when the job was started (file, want, got):", place.uri(), wanted, num_rows);
  }
  if (item.base) {
    const auto num_redone = static_cast<int64_t>(item.base->redone.size());
    return intake.num_pieces() == num_redone
               ? Status::ok()
               : Status::corrupt_data("a part names failed rows that its input does not have (part, named, found):", item.base->place.uri(),
                                      num_redone, intake.num_pieces());
  }
  item.rows_filtered = work.num_rows - intake.num_pieces();
  run_.count_filtered(item.rows_filtered);
  return {};
}

void DownloadReader::count_malformed(const std::string& table, int64_t num_before) {
  const int64_t count = rows_.num_malformed_rows() - num_before;
  if (malformed_.count == 0 && count > 0) {
    malformed_.first_table = table;
  }
  malformed_.count += count;
}

/// Of the rows that are kept those that the run works through.
std::vector<int64_t> DownloadReader::choose(const DownloadItem& item, const KeptRows& kept) const {
  std::vector<int64_t> chosen;
  for (const int64_t row : kept.rows) {
    if (!item.base || std::ranges::binary_search(item.base->redone, kept.first_row + row - item.work.first_row)) {
      chosen.push_back(row);
    }
  }
  return chosen;
}

Status DownloadReader::read_batch(const DownloadItem& item, const KeptRows& kept, ItemIntake<DownloadRow>& intake) {
  const std::vector<int64_t> chosen = choose(item, kept);
  if (chosen.empty()) {
    return {};
  }
  const std::string& path = rows_.table().path();
  const UrlColumns& columns = item.columns;
  const auto column = [&](const std::string& name) { return BytesColumn::open(path, name, kept.batch->GetColumnByName(name)); };
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn urls, column(columns.url));
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions, column(columns.caption));
  build_dictionaries(*kept.batch);
  const size_t share = share_of_batch(*kept.batch, chosen.size());
  for (const int64_t i : chosen) {
    DownloadRow row{.position = kept.first_row + i - item.work.first_row, .table = kept.batch, .table_row = i, .table_bytes = share};
    RowText text = read_row_text(rules_, urls.at(i), captions.at(i));
    row.url = std::move(text.url);
    row.caption = std::move(text.caption);
    row.caption_was_invalid = text.caption_was_invalid;
    row.error = std::move(text.error);
    if (rules_.only_duplicates || (!row.error && rules_.repeated_urls.contains(item.work.list_row + row.position))) {
      row.error = RowError{.code = RowErrorCode::kDuplicate};
    }
    const size_t text_bytes = row.url.size() + row.caption.size();
    DARKROOM_RETURN_IF_ERROR(intake.admit(sizeof(DownloadPiece) + text_bytes + share));
    intake.count(1, static_cast<int64_t>(text_bytes));
    DARKROOM_RETURN_IF_ERROR(intake.emit(std::move(row)));
  }
  return {};
}

}  // namespace darkroom
