#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/feed/dataset_files.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// What the shards of a latents dataset say about themselves in their footers, under kLatentsFooterKey; empty texts and zeros
/// when no shard has such a key (another dialect).
struct LatentsDatasetInfo {
  std::string vae_fingerprint = {};
  std::string text_encoder_fingerprint = {};
  std::string tokenizer_dialect = {};
  double scaling_factor = 0;
  std::vector<std::string> empty_caption_hashes = {};  ///< SHA-256 of the empty caption's states, each once: processors of several kinds.
  /// Why no run is begun on them: kFailedPrecondition naming two shards that other frozen parts made, or in another dialect or with another
  /// scaling factor. The fields are then of the first shard that says any.
  Status unfit = {};
};
/// Compares the shards' records. Errors: kCorruptData.
Result<LatentsDatasetInfo> read_latents_info(const IndexedDataset& dataset);

/// The file beside the shards, for caption dropout, and the key of its metadata that names who made it.
inline constexpr const char* kEmptyCaptionFile = "_empty_caption.safetensors";
inline constexpr const char* kTextEncoderKey = "text_encoder_fingerprint";

/// That file.
struct EmptyCaption {
  torch::Tensor states_tw = {};               ///< As stored.
  std::string sha256 = {};                    ///< Of their bytes.
  std::string text_encoder_fingerprint = {};  ///< Empty where the file does not say: older ones.
};
/// Errors: the store's, SafetensorsFile::open's, kCorruptData (not one tensor).
Result<EmptyCaption> read_empty_caption_file(const Location& folder);

/// What caption dropout puts in place of a caption's states.
struct DropoutStates {
  torch::Tensor states_tw = {};  ///< [T, W] as float32.
  /// Why no run is begun with them: kFailedPrecondition where the file names another text encoder than the shards.
  Status unfit = {};
  /// The same of a file that names none, by its hash; not sure, since versions before the name recorded the states that each process had
  /// made itself, not those of the file.
  Status doubt = {};
};

/// The empty caption's states that `process` left beside the shards (_empty_caption.safetensors).
/// Errors: kNotFound saying what to do; kFailedPrecondition (another shape than `states_shape`); kCorruptData (also a NaN or an infinity).
Result<DropoutStates> read_empty_caption(const DatasetFiles& dataset, const LatentsDatasetInfo& info,
                                         const std::vector<int64_t>& states_shape);

}  // namespace darkroom
