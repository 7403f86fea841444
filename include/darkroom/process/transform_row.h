#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/image/image.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/image/transform.h"
#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {

/// One row of an image dataset. `image` is the encoded picture.
struct ImageRow {
  std::string key;
  std::string caption;
  std::string image;
};

/// A row after the CPU part: decoded, transformed and tokenised.
struct PreparedRow {
  std::string key;
  std::string caption;
  int width = 0;  ///< Of the encoded picture.
  int height = 0;
  Image square;                            ///< R x R, RGB: a quarter of what the networks see takes.
  std::vector<int32_t> ids;                ///< Token ids, ClipTokenizer::kContextLength of them.
  Unported unported = Unported::kNothing;  ///< What keeps the ids from being promised equal to the reference's.
};

/// What decides a row's pixels.
struct RowTransform {
  TransformOptions transform;
  uint64_t seed = 0;   ///< Of the random crop.
  uint32_t epoch = 0;  ///< Likewise.
};

/// Decodes and transforms; the ids stay empty: for machines that do only this half. The row's errors: kNullImage (no bytes), kEmptyCaption,
/// and those of transform_pixels. The outer Status fails with the decoder.
Result<RowResult<PreparedRow>> transform_row(const ImageRow& row, const RowTransform& options, PictureDecoder& decoder);

/// Gives a row of transform_row its ids.
void tokenise_row(const ClipTokenizer& tokenizer, PreparedRow& row);

/// Both halves. Errors: transform_row's.
Result<RowResult<PreparedRow>> prepare_row(const ImageRow& row, const RowTransform& options, const ClipTokenizer& tokenizer,
                                           PictureDecoder& decoder);

}  // namespace darkroom
