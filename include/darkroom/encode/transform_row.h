#pragma once

#include <cstdint>

#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/image/transform.h"
#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {

// The two halves of RowEncoder::prepare, for machines that do only the first.

/// What decides a row's pixels.
struct RowTransform {
  TransformOptions transform;
  uint64_t seed = 0;   ///< Of the random crop.
  uint32_t epoch = 0;  ///< Likewise.
};

/// Decodes and transforms; the ids stay empty. Errors: RowEncoder::prepare's.
Result<RowResult<PreparedRow>> transform_row(const ImageRow& row, const RowTransform& options, PictureDecoder& decoder);

/// Gives a row of transform_row its ids.
void tokenise_row(const ClipTokenizer& tokenizer, PreparedRow& row);

}  // namespace darkroom
