#pragma once

#include <cstdint>
#include <string_view>

namespace darkroom {

/// What is kept of the picture.
enum class LatentsKind : uint8_t {
  kSample,   ///< One posterior draw x scaling factor.
  kMoments,  ///< Mean, then log-variance, not scaled.
};

/// What is stored for the caption.
enum class TextKind : uint8_t { kEmbeddings, kTokens, kBoth };

/// Column names, column types and container of a latents dataset (docs/formats/dialects.md).
enum class LatentsDialect : uint8_t {
  kDarkroom,     ///< docs/formats/latents_dataset.md.
  kAnyscale,     ///< Parquet of the pre-training template: latents_R_bytes, caption_latents as Ray's tensors.
  kRaySummit,    ///< The same with image_latents_R.
  kMosaicMl,     ///< MDS shards: latents_R and caption_latents as raw float16.
  kHuggingFace,  ///< Parquet with the features of Hugging Face's datasets.
};

/// As --output-dialect names it.
std::string_view latents_dialect_name(LatentsDialect dialect);

}  // namespace darkroom
