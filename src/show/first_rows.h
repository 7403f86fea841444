#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/image/contact_sheet.h"
#include "darkroom/show/inspect.h"
#include "table_kind.h"
#include "table_parts.h"

namespace darkroom {

/// The first rows as a table of one-line cells: captions clipped, pictures and tensors as what they are.
/// Errors: those of the reader; kCancelled.
Result<ReportTable> first_rows_table(FileSystem& files, const TableParts& parts, const TableKind& kind, int64_t num_rows,
                                     const std::stop_token& stop);

/// The first rows as a contact sheet: pictures, or a row of latent channels as heat maps and, with a model folder, the
/// decoded picture. Errors: as above; kFailedPrecondition (the model's vae does not fit the latents).
Result<Image> first_rows_sheet(FileSystem& files, const TableParts& parts, const TableKind& kind, const InspectOptions& options,
                               const std::stop_token& stop);

/// The first rows one by one: the same pictures with the whole caption, and the cells of `table` (first_rows_table's) that are neither.
/// Memory: every picture shrunk to 256 pixels. Errors: as above.
Result<std::vector<RowCard>> first_row_cards(FileSystem& files, const TableParts& parts, const TableKind& kind, const ReportTable& table,
                                             const InspectOptions& options, const std::stop_token& stop);

}  // namespace darkroom
