#include "image_row_reader.h"

#include "darkroom/ingest/row_dialects.h"
#include "darkroom/process/image_rows.h"

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
  DARKROOM_ASSIGN_OR_RETURN(const auto batches, reader_->read(place, names_of(columns)));
  Group group;
  int64_t num_bytes = 0;
  for (const auto& batch : batches) {
    const int64_t first_row = first_row_of_dataset + static_cast<int64_t>(group.size());
    DARKROOM_ASSIGN_OR_RETURN(const ImageRows rows, ImageRows::open(path, columns, *batch, first_row));
    for (int64_t row = 0; row < rows.num_rows(); ++row) {
      group.push_back(rows.at(row).row);
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
