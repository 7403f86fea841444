#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/prompts/picture_fields.h"

namespace darkroom {

/// What a job file leaves to others.
struct JobFileOptions {
  PictureFields defaults = {};             ///< Fields that the file does not set.
  uint64_t images = 1;                     ///< Pictures of a prompt, where it does not say.
  std::vector<std::string> samplers = {};  ///< That a picture may name; none: any.
  uint64_t max_pictures = 10'000;          ///< Of all jobs together.
};

/// Bytes that a prompt or negative text may have once its words are filled in.
inline constexpr size_t kMostPromptBytes = 65'536;

struct PlannedPicture {
  PictureFields fields = {};
  std::string style = {};  ///< The name of the style that its prompt has; empty: none.

  bool operator==(const PlannedPicture&) const = default;
};

/// One [[job]]: pictures [first_picture, first_picture + num_pictures) and how they lie on its sheet, row by row.
struct PictureJob {
  std::string name = {};  ///< 1 to 64 letters, digits, - and _: that of a folder.
  size_t first_picture = 0;
  size_t num_pictures = 0;
  size_t num_columns = 0;                       ///< At least 1.
  std::vector<std::string> column_titles = {};  ///< One a column, or none.
  std::vector<std::string> row_titles = {};     ///< Row r has row_titles[r % size]; or none.
  bool captions_tell_prompt = false;            ///< Pictures differ in it.
  bool captions_tell_seed = false;              ///< They differ in it, and the columns do not tell it.

  bool operator==(const PictureJob&) const = default;
};

/// What a job file asks for.
struct PictureJobs {
  std::vector<PlannedPicture> pictures = {};
  std::vector<PictureJob> jobs = {};
  std::set<std::string> fields_set = {};  ///< Fields that the file gives to some picture, "images" among them.
};

/// The pictures of a job file (docs/formats/jobs.md), all their fields resolved. A pure function of its arguments: the order of the
/// pictures is that of the file, and in a job: prompts, words of the lists (those of the last place run fastest), styles, seeds, rows,
/// columns. Time and memory are linear in the text of file and pictures; the number of pictures is checked before any is made. `name` is
/// how messages call the file. Errors: kInvalidArgument naming file, line, job, key and value.
Result<PictureJobs> expand_picture_jobs(std::string_view text, std::string_view name, const JobFileOptions& options = {});

/// JOB/00007.png: the file of a job's picture, counted within the job.
std::string picture_file(const PictureJob& job, size_t index_in_job);

/// What stands below a picture of a job's sheet: what differs and no title tells.
std::string picture_caption(const PictureJob& job, const PlannedPicture& picture);
/// What stands above a job's sheet: its name and what all of its pictures have alike. REQUIRES: `pictures` are the job's, at least one.
std::string sheet_heading(const PictureJob& job, std::span<const PlannedPicture> pictures);

}  // namespace darkroom
