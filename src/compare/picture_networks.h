#pragma once

#include <torch/torch.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/image.h"
#include "darkroom/measure/feature_distance.h"

namespace darkroom {

/// A network that sees pictures as rows of numbers. Thread safety: one thread.
class PictureNetwork {
 public:
  virtual ~PictureNetwork() = default;
  /// A row a picture. Errors: kCorruptData (a network whose output is no such row, or no numbers). REQUIRES: RGB pictures, not empty.
  virtual Result<FeatureRows> features(std::span<const Image> pictures) = 0;
};

/// CLIP as transformers stores it.
class ClipNetwork : public PictureNetwork {
 public:
  /// Cosines of pictures' embeddings with the embedding of a text.
  virtual Result<std::vector<double>> cosines(std::span<const Image> pictures, const std::string& text) = 0;
};

/// Where the networks lie in --weights-dir.
std::string clip_folder(const std::string& weights_dir);
std::string inception_path(const std::string& weights_dir);

/// Pictures are resized (bicubic, shorter side) and cropped to CLIP's size as its own preprocessing does, and normalised with its means;
/// the features are the projected embeddings. Errors: those of load_clip and of the tokenizer.
Result<std::unique_ptr<ClipNetwork>> open_clip_network(const std::string& folder);

/// The Inception of FID as a TorchScript file whose submodule `layers` takes pictures of 299 x 299 in [-1, 1], as NVIDIA publishes it and
/// clean-fid uses it: pictures are resized by clean_resize, less 128, over 128. Errors: kNotFound, kCorruptData.
Result<std::unique_ptr<PictureNetwork>> open_inception_network(const std::string& path);

/// clean-fid's resize (Parmar et al. 2022): bicubic with antialiasing in floating point as Pillow's mode F, clamped to [0, 255] and not
/// rounded. Returns float32 (1, 3, side, side).
torch::Tensor clean_resize(const Image& picture, int64_t side);

}  // namespace darkroom
