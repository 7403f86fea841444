#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/prompts/picture_jobs.h"
#include "darkroom/prompts/picture_record.h"

namespace darkroom {

/// How a job's pictures are shared out over pages.
struct SheetPages {
  int cell = 0;        ///< Pixels of a cell, a side.
  size_t columns = 1;  ///< Of a page, at most.
  size_t rows = 1;
  size_t across = 1;  ///< Pages beside each other.
  size_t down = 1;    ///< Pages below each other.
};

inline constexpr int kSmallestSheetCell = 128;  ///< Pixels of a cell, a side.
inline constexpr int kLargestSheetCell = 512;
inline constexpr int kMostSheetSide = 16'384;            ///< Pixels.
inline constexpr int64_t kMostSheetPixels = 32'000'000;  ///< Of a page.

/// `side` is the larger one of the pictures' sides. REQUIRES: the job has pictures and columns.
SheetPages sheet_pages(const PictureJob& job, int side);

/// Draws a job's sheet from the files of its pictures: OUT/JOB/sheet.png, and further pages sheet-2.png, ...; what is left of more pages of
/// an earlier run is removed. Gives the number of pages. A page of pictures is in memory at a time. Errors: kCorruptData (a picture that is
/// none), kCancelled, those of the files. REQUIRES: `pictures` are the job's.
Result<int64_t> draw_job_sheet(FileSystem& files, const std::string& folder, const PictureJob& job,
                               std::span<const RecordedPicture> pictures, const std::stop_token& stop);

}  // namespace darkroom
