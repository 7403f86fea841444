#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "darkroom/paint/picture_run.h"
#include "painting/painter_flags.h"
#include "verb.h"

namespace darkroom {

/// What `sample --jobs` and `sample --reproduce` are asked for.
struct SampleJobsFlags {
  std::string jobs_file = {};          ///< --jobs; empty: not asked for.
  std::string record_file = {};        ///< --reproduce; empty: not asked for.
  std::vector<std::string> only = {};  ///< Of the record: jobs, or files of pictures; none: all.
  std::string init_images = {};        ///< Of the record: where its initial pictures may lie besides its own folder; empty: nowhere else.
  uint64_t max_pictures = 10'000;      ///< Of a job file.
  // What the command line says beside them.
  std::string output = {};  ///< Folder.
  int workers = 0;
  int threads = 1;  ///< Inside an operation; 0: every processor.
  PictureFields fields = {};
  uint64_t images = 1;

  bool are_asked_for() const { return !jobs_file.empty() || !record_file.empty(); }
};

/// Paints what the job file or the record says. Errors: kInvalidArgument (a flag that does not go with these, one for a field that the file
/// sets, a file that cannot be read or says what cannot be painted), those of paint_pictures.
Result<int> run_sample_jobs(const SampleJobsFlags& flags, const PainterFlags& painter, VerbContext& context);

}  // namespace darkroom
