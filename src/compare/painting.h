#pragma once

#include <stop_token>

#include "comparison_record.h"
#include "darkroom/compare/compare.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/image.h"

namespace darkroom {

/// Paints what is missing of a comparison, B first: it is the one that is opened second and compared with A before a step is taken.
/// `record` has its settings; its shared part is filled in and the record written before the first picture, unless `is_begun`. Counts in
/// `report`. Errors: as run_comparison.
Status paint_comparison(FileSystem& files, const CompareJob& job, bool is_begun, const std::stop_token& stop,
                        const PaintingProgress& on_painted, CompareRecord& record, CompareReport& report);

/// A picture of the comparison. Errors: kNotFound, kCorruptData (damaged, of another size), those of the file.
Result<Image> read_compared_picture(FileSystem& files, const std::string& path, const SharedSettings& shared);

}  // namespace darkroom
