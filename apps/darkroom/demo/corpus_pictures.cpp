#include "corpus_pictures.h"

#include <algorithm>
#include <utility>

#include "darkroom/compare/dataset_pictures.h"

namespace darkroom {

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
  const auto add = [&corpus](DatasetPicture row) -> Status {
    if (!row.picture.is_ok()) {
      return Status::corrupt_data("a downloaded picture cannot be decoded (path, key, code):", row.path, row.key,
                                  row.picture.error().name());
    }
    corpus.keys.push_back(std::move(row.key));
    corpus.captions.push_back(std::move(row.caption));
    corpus.pictures.push_back(std::move(row.picture).value());
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(visit_dataset_pictures(files, images, transform, *decoder_in_process(), stop, add));
  return corpus;
}

}  // namespace darkroom
