#include "corpus_pictures.h"

#include <algorithm>
#include <span>

#include "darkroom/stores/input_listing.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {
namespace {

constexpr int64_t kBatchRows = 64;  // How many pictures late a stop request may be seen.

Status add_batch(const arrow::RecordBatch& batch, const std::string& path, const TransformOptions& transform, CorpusPictures& corpus) {
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn keys, BytesColumn::open(path, "key", batch.column(0)));
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions, BytesColumn::open(path, "caption", batch.column(1)));
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn images, BytesColumn::open(path, "image", batch.column(2)));
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    const std::string key(keys.at(row).value_or(""));
    const std::string_view bytes = images.at(row).value_or("");
    RowResult<Image> image = decode_image(std::as_bytes(std::span(bytes)), ImageLimits{}, transform.orientation);
    if (!image.is_ok()) {
      return Status::corrupt_data("a downloaded picture cannot be decoded (path, key, code):", path, key, image.error().name());
    }
    corpus.keys.push_back(key);
    corpus.captions.emplace_back(captions.at(row).value_or(""));
    corpus.pictures.push_back(resize_and_crop(image.value(), transform));
  }
  return Status::ok();
}

}  // namespace

Result<size_t> CorpusPictures::find_caption(const std::string& caption) const {
  const auto found = std::find(captions.begin(), captions.end(), caption);
  if (found == captions.end()) {
    return Status::not_found("the corpus has no picture with the caption:", caption);
  }
  return static_cast<size_t>(found - captions.begin());
}

Result<CorpusPictures> read_corpus_pictures(FileSystem& files, const std::string& images, const TransformOptions& transform,
                                            const std::stop_token& stop) {
  CorpusPictures corpus;
  DARKROOM_ASSIGN_OR_RETURN(const auto parts, list_inputs(files, images));
  for (const FileInfo& part : parts) {
    DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(files, part.path));
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_rows, table->num_rows());
    DARKROOM_ASSIGN_OR_RETURN(const auto rows, table->read_rows(0, num_rows, {"key", "caption", "image"}, {.max_batch_rows = kBatchRows}));
    for (;;) {
      if (stop.stop_requested()) {
        return Status::cancelled("stopped on request while reading:", part.path);
      }
      DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next());
      if (batch == nullptr) {
        break;
      }
      DARKROOM_RETURN_IF_ERROR(add_batch(*batch, part.path, transform, corpus));
    }
  }
  return corpus;
}

}  // namespace darkroom
