#include "image_row_reader.h"

#include <arrow/array.h>

#include "darkroom/core/utf8.h"
#include "darkroom/ingest/job_identity.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/tables/bytes_column.h"

namespace darkroom {

Result<std::unique_ptr<ImageRowReader>> ImageRowReader::open(const DatasetFiles& dataset, const DatasetIndex& index, int64_t memory_bytes) {
  auto reader = RowGroupReader::create(dataset, index);
  DARKROOM_ASSIGN_OR_RETURN(const auto place, reader->locate(0));
  DARKROOM_ASSIGN_OR_RETURN(const auto schema, reader->schema(place));
  DARKROOM_RETURN_IF_ERROR(find_image_columns(*schema, reader->path(place.file)).status());
  return std::unique_ptr<ImageRowReader>(new ImageRowReader(std::move(reader), memory_bytes));
}

Result<std::shared_ptr<const ImageRowReader::Group>> ImageRowReader::load(const RowGroupPlace& place, int64_t first_row_of_dataset) {
  const std::string& path = reader_->path(place.file);
  DARKROOM_ASSIGN_OR_RETURN(const auto schema, reader_->schema(place));
  DARKROOM_ASSIGN_OR_RETURN(const ImageColumns columns, find_image_columns(*schema, path));
  std::vector<std::string> names = {columns.image, columns.caption};
  if (!columns.key.empty()) {
    names.push_back(columns.key);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto batches, reader_->read(place, names));
  Group group;
  int64_t num_bytes = 0;
  for (const auto& batch : batches) {
    DARKROOM_ASSIGN_OR_RETURN(const auto images, open_image_column(path, columns.image, batch->column(0)));
    DARKROOM_ASSIGN_OR_RETURN(const auto captions, BytesColumn::open(path, columns.caption, batch->column(1)));
    // Without keys the captions stand in for the column and are not read from it.
    DARKROOM_ASSIGN_OR_RETURN(const auto keys, BytesColumn::open(path, columns.key, batch->column(columns.key.empty() ? 1 : 2)));
    for (int64_t row = 0; row < batch->num_rows(); ++row) {
      const std::string numbered = row_key(first_row_of_dataset + static_cast<int64_t>(group.size()));
      group.push_back({columns.key.empty() ? numbered : std::string(keys.at(row).value_or(numbered)),
                       replace_invalid_utf8(captions.at(row).value_or("")).first, std::string(images.at(row).value_or(""))});
      num_bytes += static_cast<int64_t>(group.back().image.size() + group.back().caption.size() + sizeof(ImageRow));
    }
  }
  return groups_.insert(place.id, std::move(group), num_bytes);
}

Result<ImageRow> ImageRowReader::read(int64_t row) {
  DARKROOM_ASSIGN_OR_RETURN(const RowGroupPlace place, reader_->locate(row));
  auto group = groups_.find(place.id);
  if (group == nullptr) {
    DARKROOM_ASSIGN_OR_RETURN(group, load(place, row - place.row_in_group()));
  }
  return (*group)[static_cast<size_t>(place.row_in_group())];
}

}  // namespace darkroom
