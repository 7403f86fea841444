#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/image/contact_sheet.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/nn/vae.h"
#include "darkroom/show/inspect.h"
#include "table_kind.h"
#include "table_parts.h"

namespace darkroom {

/// Sides of a row's picture, at most.
inline constexpr int kShownPixels = 256;

/// An encoded picture at most kShownPixels on its longer side, or why the row has none. The outer Status ends the whole.
using ShrinkPicture = std::function<Result<RowResult<Image>>(std::string_view bytes)>;

using OpenPictureDecoder = std::function<Result<std::unique_ptr<PictureDecoder>>()>;
/// The same by a decoder, which is opened when the first one comes that looks like a picture. The outer Status: there is no decoder, or it
/// is lost.
Result<RowResult<Image>> shrink_with(std::string_view bytes, int64_t max_bytes, const ImageLimits& limits,
                                     std::unique_ptr<PictureDecoder>& decoder, const OpenPictureDecoder& open);

/// Rows as a table of one-line cells without a title: captions clipped, pictures and tensors as what they are.
/// Errors: those of the reader; kCancelled.
Result<ReportTable> rows_table(FileSystem& files, const TableParts& parts, const TableKind& kind, const RowSpan& span,
                               const std::stop_token& stop);

/// The first rows as a contact sheet: pictures, or a row of latent channels as heat maps and, with a model folder, the
/// decoded picture. Errors: as above; kFailedPrecondition (the model's vae does not fit the latents).
Result<Image> first_rows_sheet(FileSystem& files, const TableParts& parts, const TableKind& kind, const InspectOptions& options,
                               const std::stop_token& stop);

/// The first rows one by one: the same pictures with the whole caption, and the cells of `table` (rows_table's of them) that are neither.
/// Memory: every picture shrunk to 256 pixels. Errors: as above.
Result<std::vector<RowCard>> first_row_cards(FileSystem& files, const TableParts& parts, const TableKind& kind, const ReportTable& table,
                                             const InspectOptions& options, const std::stop_token& stop);

struct RowCardOptions {
  ShrinkPicture shrink;                ///< Of a dataset with images.
  const AutoencoderKL* vae = nullptr;  ///< Decodes latents; null: they are shown as heat maps only.
};

/// The same of any rows, and of tables without pictures. Errors: those of the reader, shrink's, kCancelled; kInvalidArgument (the vae does
/// not fit the latents, or they are of more than 256 x 256 places).
Result<std::vector<RowCard>> row_cards(FileSystem& files, const TableParts& parts, const TableKind& kind, const RowSpan& span,
                                       const RowCardOptions& options, const std::stop_token& stop);

}  // namespace darkroom
