#include "darkroom/compare/dataset_pictures.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "darkroom/core/utf8.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/stores/input_listing.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {
namespace {

constexpr int64_t kBatchRows = 64;  // How many pictures late a stop request may be seen.

std::vector<std::string> distinct_columns(const ImageColumns& columns) {
  std::vector<std::string> names;
  for (const std::string& name : {columns.image, columns.caption, columns.key}) {
    if (!name.empty() && std::ranges::find(names, name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

Result<RowResult<Image>> read_picture(PictureDecoder& decoder, std::string_view bytes, const TransformOptions& transform) {
  Image square = Image::filled(transform.resolution, transform.resolution, 3);
  DARKROOM_ASSIGN_OR_RETURN(const auto decoded,
                            decoder.transform(std::as_bytes(std::span(bytes)), transform, ImageLimits{}, {}, square.pixels));
  return decoded.is_ok() ? RowResult<Image>(std::move(square)) : RowResult<Image>(decoded.error());
}

Status visit_batch(const arrow::RecordBatch& batch, const std::string& path, const ImageColumns& columns, const TransformOptions& transform,
                   PictureDecoder& decoder, const std::function<Status(DatasetPicture)>& visit) {
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn images, open_image_column(path, columns.image, batch.GetColumnByName(columns.image)));
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions, BytesColumn::open(path, columns.caption, batch.GetColumnByName(columns.caption)));
  const std::string& key_name = columns.key.empty() ? columns.caption : columns.key;
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn keys, BytesColumn::open(path, key_name, batch.GetColumnByName(key_name)));
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    DARKROOM_ASSIGN_OR_RETURN(auto picture, read_picture(decoder, images.at(row).value_or(""), transform));
    DARKROOM_RETURN_IF_ERROR(visit({.path = path,
                                    .key = columns.key.empty() ? std::string() : std::string(keys.at(row).value_or("")),
                                    .caption = replace_invalid_utf8(captions.at(row).value_or("")).first,
                                    .picture = std::move(picture)}));
  }
  return Status::ok();
}

}  // namespace

Status visit_dataset_pictures(FileSystem& files, const std::string& uri, const TransformOptions& transform, PictureDecoder& decoder,
                              const std::stop_token& stop, const std::function<Status(DatasetPicture)>& visit) {
  DARKROOM_ASSIGN_OR_RETURN(const auto parts, list_image_inputs(files, uri, stop));
  for (const FileInfo& part : parts) {
    DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(files, part.path));
    DARKROOM_ASSIGN_OR_RETURN(const ImageColumns columns, find_image_columns(*table->schema(), part.path));
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_rows, table->num_rows());
    DARKROOM_ASSIGN_OR_RETURN(const auto rows, table->read_rows(0, num_rows, distinct_columns(columns), {.max_batch_rows = kBatchRows}));
    for (;;) {
      if (stop.stop_requested()) {
        return Status::cancelled("stopped on request while reading:", part.path);
      }
      DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next());
      if (batch == nullptr) {
        break;
      }
      DARKROOM_RETURN_IF_ERROR(visit_batch(*batch, part.path, columns, transform, decoder, visit));
    }
  }
  return Status::ok();
}

}  // namespace darkroom
