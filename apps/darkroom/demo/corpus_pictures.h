#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/transform.h"

namespace darkroom {

/// The rows of an image dataset as process sees them: element i of each is row i.
struct CorpusPictures {
  std::vector<std::string> keys;
  std::vector<std::string> captions;
  std::vector<Image> pictures;  ///< Decoded, resized and cropped: the pixels that process gives to the VAE.

  size_t size() const { return keys.size(); }
  /// Row of a caption. Errors: kNotFound.
  Result<size_t> find_caption(const std::string& caption) const;
};

/// Reads an image dataset that download made. Errors: those of the store; kCorruptData naming a row whose picture cannot be
/// decoded; kCancelled.
Result<CorpusPictures> read_corpus_pictures(FileSystem& files, const std::string& images, const TransformOptions& transform,
                                            const std::stop_token& stop);

}  // namespace darkroom
