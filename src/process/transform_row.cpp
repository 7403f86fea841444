#include "darkroom/process/transform_row.h"

#include <span>
#include <utility>

#include "darkroom/core/random.h"
#include "darkroom/ingest/row_dialects.h"

namespace darkroom {

Result<RowResult<PreparedRow>> transform_row(const ImageRow& row, const RowTransform& options, PictureDecoder& decoder) {
  if (row.image.empty()) {
    return RowResult<PreparedRow>(RowError{.code = RowErrorCode::kNullImage});
  }
  if (is_blank(row.caption)) {
    return RowResult<PreparedRow>(RowError{.code = RowErrorCode::kEmptyCaption});
  }
  const TransformOptions& transform = options.transform;
  CropDraw draw;
  if (transform.crop == Crop::kRandom) {
    const CounterRandom random(options.seed, Purpose::kCrop, options.epoch, row.key);
    draw = {.x = random.uniform(0), .y = random.uniform(1)};
  }
  Image square = Image::filled(transform.resolution, transform.resolution, 3);
  DARKROOM_ASSIGN_OR_RETURN(const RowResult<DecodedSize> size,
                            decoder.transform(std::as_bytes(std::span(row.image)), transform, kAnySize, draw, square.pixels));
  if (!size.is_ok()) {
    return RowResult<PreparedRow>(size.error());
  }
  return RowResult<PreparedRow>(PreparedRow{
      .key = row.key, .caption = row.caption, .width = size->width, .height = size->height, .square = std::move(square), .ids = {}});
}

void tokenise_row(const ClipTokenizer& tokenizer, PreparedRow& row) {
  row.ids.resize(ClipTokenizer::kContextLength);
  row.unported = tokenizer.encode(row.caption, row.ids);
}

Result<RowResult<PreparedRow>> prepare_row(const ImageRow& row, const RowTransform& options, const ClipTokenizer& tokenizer,
                                           PictureDecoder& decoder) {
  DARKROOM_ASSIGN_OR_RETURN(RowResult<PreparedRow> prepared, transform_row(row, options, decoder));
  if (prepared.is_ok()) {
    tokenise_row(tokenizer, *prepared);
  }
  return prepared;
}

}  // namespace darkroom
