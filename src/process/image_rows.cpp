#include "darkroom/process/image_rows.h"

#include <algorithm>

#include "darkroom/core/utf8.h"
#include "darkroom/ingest/job_identity.h"

namespace darkroom {

std::vector<std::string> names_of(const ImageColumns& columns, const std::vector<std::string>& kept) {
  std::vector<std::string> wanted = {columns.image, columns.caption, columns.key};
  wanted.insert(wanted.end(), kept.begin(), kept.end());
  std::vector<std::string> names;
  for (const std::string& name : wanted) {
    if (!name.empty() && std::ranges::find(names, name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

Result<ImageRows> ImageRows::open(const std::string& path, const ImageColumns& columns, const arrow::RecordBatch& batch,
                                  int64_t first_list_row) {
  DARKROOM_ASSIGN_OR_RETURN(BytesColumn images, open_image_column(path, columns.image, batch.GetColumnByName(columns.image)));
  DARKROOM_ASSIGN_OR_RETURN(BytesColumn captions, BytesColumn::open(path, columns.caption, batch.GetColumnByName(columns.caption)));
  const bool has_keys = !columns.key.empty();
  const std::string& key_name = has_keys ? columns.key : columns.caption;
  DARKROOM_ASSIGN_OR_RETURN(BytesColumn keys, BytesColumn::open(path, key_name, batch.GetColumnByName(key_name)));
  return ImageRows(std::move(images), std::move(captions), std::move(keys), has_keys, first_list_row, batch.num_rows());
}

size_t ImageRows::num_bytes(int64_t row) const { return images_.at(row).value_or("").size() + captions_.at(row).value_or("").size(); }

ReadImageRow ImageRows::at(int64_t row) const {
  const auto key = has_keys_ ? keys_.at(row) : std::nullopt;
  auto [caption, was_invalid] = replace_invalid_utf8(captions_.at(row).value_or(""));
  return {.row = {.key = key && !key->empty() ? replace_invalid_utf8(*key).first : row_key(first_list_row_ + row),
                  .caption = std::move(caption),
                  .image = std::string(images_.at(row).value_or(""))},
          .caption_was_invalid = was_invalid};
}

}  // namespace darkroom
