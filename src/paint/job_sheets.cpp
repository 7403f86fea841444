#include "job_sheets.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "darkroom/files/paths.h"
#include "darkroom/image/contact_sheet.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/png.h"
#include "darkroom/image/resample.h"
#include "darkroom/image/sheet_heading.h"

namespace darkroom {
namespace {

constexpr int kGap = 8;           // Between cells.
constexpr int kTitleWidth = 256;  // Room for the titles of the rows.
constexpr int kHeadingHeight = 128;
constexpr int kCaptionLines = 3;

int row_height(int cell) { return cell + kCaptionLines * text_line_height() + kGap; }

// The part of a job that lies on one page.
struct Page {
  size_t first_row = 0;
  size_t num_rows = 0;
  size_t first_column = 0;
  size_t num_columns = 0;
};

Result<Image> load_shrunk(FileSystem& files, const std::string& path, int cell) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(files, path));
  RowResult<Image> decoded = decode_image(std::as_bytes(std::span(bytes)), kAnySize);
  if (!decoded.is_ok()) {
    return Status::corrupt_data("a picture for the sheet cannot be read (path, error):", path, decoded.error().name());
  }
  Image image = std::move(decoded).value();
  const int longest = std::max(image.width, image.height);
  if (longest <= cell) {
    return image;
  }
  const auto shrunk = [&](int side) { return std::max(1, static_cast<int>(static_cast<int64_t>(side) * cell / longest)); };
  return resize(image, shrunk(image.width), shrunk(image.height), Filter::kLanczos);
}

template <typename Titles>
std::vector<std::string> cut_titles(const Titles& titles, size_t first, size_t count) {
  std::vector<std::string> cut;
  for (size_t i = 0; i < count && !titles.empty(); ++i) {
    cut.push_back(titles[(first + i) % titles.size()]);
  }
  return cut;
}

Result<Image> draw_page(FileSystem& files, const std::string& folder, const PictureJob& job, std::span<const RecordedPicture> pictures,
                        const Page& page, int cell, const std::string& heading, const std::stop_token& stop) {
  std::vector<std::vector<ContactSheetCell>> rows;
  for (size_t row = page.first_row; row < page.first_row + page.num_rows; ++row) {
    rows.emplace_back();
    for (size_t column = page.first_column; column < page.first_column + page.num_columns; ++column) {
      const size_t index = row * job.num_columns + column;
      if (index >= pictures.size()) {
        break;
      }
      if (stop.stop_requested()) {
        return Status::cancelled("stopped while a sheet was drawn:", job.name);
      }
      DARKROOM_ASSIGN_OR_RETURN(Image image, load_shrunk(files, join_path(folder, pictures[index].file), cell));
      rows.back().push_back({std::move(image), picture_caption(job, pictures[index].picture)});
    }
  }
  const Image sheet = render_contact_sheet(rows, {.cell_width = cell,
                                                  .cell_height = cell,
                                                  .num_caption_lines = kCaptionLines,
                                                  .column_titles = cut_titles(job.column_titles, page.first_column, page.num_columns),
                                                  .row_titles = cut_titles(job.row_titles, page.first_row, page.num_rows)});
  return with_heading(sheet, heading);
}

std::string sheet_file(const PictureJob& job, int64_t page) {
  return page == 1 ? fmt::format("{}/sheet.png", job.name) : fmt::format("{}/sheet-{}.png", job.name, page);
}

Status remove_pages_from(FileSystem& files, const std::string& folder, const PictureJob& job, int64_t page) {
  while (true) {
    const Status removed = files.remove_file(join_path(folder, sheet_file(job, page++)));
    if (!removed.is_ok()) {
      return removed.code() == StatusCode::kNotFound ? Status::ok() : removed;
    }
  }
}

}  // namespace

SheetPages sheet_pages(const PictureJob& job, int side) {
  SheetPages pages;
  const int room = kMostSheetSide - kTitleWidth;
  const int fitting = static_cast<int>(static_cast<size_t>(room) / job.num_columns) - kGap;
  pages.cell = std::max(std::min(std::clamp(side, kSmallestSheetCell, kLargestSheetCell), fitting), kSmallestSheetCell);
  pages.columns = std::min(job.num_columns, static_cast<size_t>(room / (pages.cell + kGap)));
  const auto width = static_cast<int64_t>(pages.columns) * (pages.cell + kGap) + kTitleWidth;
  const int64_t tallest = std::min<int64_t>(kMostSheetPixels / width, kMostSheetSide) - kHeadingHeight;
  pages.rows = static_cast<size_t>(std::max<int64_t>(1, tallest / row_height(pages.cell)));
  const size_t num_rows = (job.num_pictures - 1) / job.num_columns + 1;
  pages.across = (job.num_columns - 1) / pages.columns + 1;
  pages.down = (num_rows - 1) / pages.rows + 1;
  return pages;
}

Result<int64_t> draw_job_sheet(FileSystem& files, const std::string& folder, const PictureJob& job,
                               std::span<const RecordedPicture> pictures, const std::stop_token& stop) {
  uint64_t side = 0;
  std::vector<PlannedPicture> planned;
  for (const RecordedPicture& picture : pictures) {
    side = std::max({side, picture.picture.fields.width, picture.picture.fields.height});
    planned.push_back(picture.picture);
  }
  const std::string heading = sheet_heading(job, planned);
  const SheetPages pages = sheet_pages(job, static_cast<int>(side));
  const size_t num_rows = (pictures.size() - 1) / job.num_columns + 1;
  const size_t count = pages.across * pages.down;
  for (size_t i = 0; i < count; ++i) {
    Page page{.first_row = i / pages.across * pages.rows, .first_column = i % pages.across * pages.columns};
    page.num_rows = std::min(pages.rows, num_rows - page.first_row);
    page.num_columns = std::min(pages.columns, job.num_columns - page.first_column);
    const std::string title = count == 1 ? heading : fmt::format("page {} of {}: {}", i + 1, count, heading);
    DARKROOM_ASSIGN_OR_RETURN(const Image sheet, draw_page(files, folder, job, pictures, page, pages.cell, title, stop));
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, join_path(folder, sheet_file(job, static_cast<int64_t>(i) + 1)), encode_png(sheet)));
  }
  DARKROOM_RETURN_IF_ERROR(remove_pages_from(files, folder, job, static_cast<int64_t>(count) + 1));
  return static_cast<int64_t>(count);
}

}  // namespace darkroom
