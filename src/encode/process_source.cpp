#include "process_source.h"

#include <utility>

#include "darkroom/core/utf8.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/tables/bytes_column.h"

namespace darkroom {
namespace {

ReadOptions read_options() {
  ReadOptions options;
  options.batch_bytes = 4 << 20;
  options.max_batch_rows = 256;
  return options;
}

Status read_record_batch(const std::string& path, const ImageColumns& columns, const arrow::RecordBatch& batch, int64_t first_list_row,
                         const RowConsumer& consume) {
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn images, open_image_column(path, columns.image, batch.GetColumnByName(columns.image)));
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions, BytesColumn::open(path, columns.caption, batch.GetColumnByName(columns.caption)));
  // Without a key column the captions stand in for it and are not read as keys.
  const std::string& key_name = columns.key.empty() ? columns.caption : columns.key;
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn keys, BytesColumn::open(path, key_name, batch.GetColumnByName(key_name)));
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    auto [caption, was_invalid] = replace_invalid_utf8(captions.at(i).value_or(""));
    const auto key = columns.key.empty() ? std::nullopt : keys.at(i);
    ImageRow row{.key = key ? std::string(*key) : row_key(first_list_row + i),
                 .caption = std::move(caption),
                 .image = std::string(images.at(i).value_or(""))};
    DARKROOM_RETURN_IF_ERROR(consume(std::move(row), was_invalid));
  }
  return {};
}

}  // namespace

Status read_image_rows(TableReader& table, const WorkItem& work, const RowConsumer& consume) {
  DARKROOM_ASSIGN_OR_RETURN(const ImageColumns columns, find_image_columns(*table.schema(), table.path()));
  std::vector<std::string> names = {columns.image, columns.caption};
  if (!columns.key.empty()) {
    names.push_back(columns.key);
  }
  DARKROOM_ASSIGN_OR_RETURN(auto range, table.read_rows(work.first_row, work.num_rows, names, read_options()));
  int64_t num_rows = 0;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, range->next());
    if (batch == nullptr) {
      break;
    }
    DARKROOM_RETURN_IF_ERROR(read_record_batch(table.path(), columns, *batch, work.list_row + num_rows, consume));
    num_rows += batch->num_rows();
  }
  if (num_rows != work.num_rows) {
    return Status::corrupt_data("an input has fewer rows than when the job was started (file, want, got):", table.path(), work.num_rows,
                                num_rows);
  }
  return {};
}

Result<std::shared_ptr<ProcessItem>> PendingItems::take(const std::stop_token& stop) {
  std::lock_guard lock(mutex_);
  auto slot = open_items_.acquire(1, stop);
  if (!slot) {
    return Status::cancelled("stopped before the next item");
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<WorkItem> work, run_.take_item(stop));
  if (!work) {
    return std::shared_ptr<ProcessItem>();
  }
  auto item = std::make_shared<ProcessItem>();
  item->work = *work;
  item->open_slot = *std::move(slot);
  return item;
}

Status ProcessSource::read_all(const Consumer& consume, Emitter<ProcessBatch>& out) {
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessItem> item, out.waiting([&] { return items_.take(out.stop()); }));
    if (item == nullptr) {
      return {};
    }
    DARKROOM_RETURN_IF_ERROR(read_item(item, consume, out));
  }
}

Status ProcessSource::read_item(const std::shared_ptr<ProcessItem>& item, const Consumer& consume, Emitter<ProcessBatch>& out) {
  const WorkItem& work = item->work;
  item->num_batches = (work.num_rows + batch_size_ - 1) / batch_size_;
  const std::string& path = run_.input_of(work).path;
  if (table_ == nullptr || table_->path() != path) {
    DARKROOM_ASSIGN_OR_RETURN(table_, open_table(run_.files(), path));
  }
  ProcessBatch batch{.item = item};
  int64_t num_batches = 0;
  DARKROOM_RETURN_IF_ERROR(read_image_rows(*table_, work, [&](ImageRow row, bool caption_was_invalid) -> Status {
    batch.rows.push_back(std::move(row));
    batch.tally.num_invalid_captions += caption_was_invalid ? 1 : 0;
    if (static_cast<int>(batch.rows.size()) < batch_size_) {
      return {};
    }
    return hand_on(std::exchange(batch, ProcessBatch{.item = item, .index = ++num_batches, .first_position = num_batches * batch_size_}),
                   consume, out);
  }));
  return batch.rows.empty() ? Status() : hand_on(std::move(batch), consume, out);
}

Status ProcessSource::hand_on(ProcessBatch batch, const Consumer& consume, Emitter<ProcessBatch>& out) {
  batch.tally.rows_in = static_cast<int64_t>(batch.rows.size());
  size_t size_bytes = batch.rows.size() * (row_bytes_.prepared + row_bytes_.encoded);
  for (const ImageRow& row : batch.rows) {
    size_bytes += row.image.size() + row.caption.size();
  }
  auto lease = out.waiting([&] { return rows_.acquire(size_bytes, out.stop()); });
  if (!lease) {
    return Status::cancelled("stopped in item", batch.item->work.number);
  }
  batch.lease = *std::move(lease);
  return consume(std::move(batch));
}

}  // namespace darkroom
