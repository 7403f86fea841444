#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/paint/painter.h"
#include "darkroom/paint/sample_job.h"
#include "darkroom/prompts/picture_jobs.h"
#include "darkroom/prompts/picture_record.h"

namespace darkroom {

/// A run of `sample --jobs` or `sample --reproduce`: pictures with all their fields, each with settings of its own.
struct PictureRun {
  /// What to paint and under which name. A digest, of the file or of its initial picture, is what it must have.
  std::vector<RecordedPicture> pictures = {};
  std::vector<PictureJob> jobs = {};  ///< A sheet for each.
  std::string output = {};            ///< Folder.
  int workers = 0;                    ///< Pictures painted side by side, which changes no bit; 0: see paint_side_by_side.
  PictureOrigin origin = {};          ///< What is asked for; where the model lies and its fingerprints come from the opener.
  /// Fingerprints that the model must have, as far as they are named.
  std::map<std::string, std::string> wanted_fingerprints = {};
};

/// The pictures of job files, named, none painted yet.
std::vector<RecordedPicture> pictures_to_paint(const PictureJobs& jobs);

struct PictureModel {
  std::unique_ptr<Painter> painter = {};
  std::map<std::string, std::string> fingerprints = {};  ///< See PictureOrigin.
};
using PictureModelOpener = std::function<Result<PictureModel>()>;

/// How far a run came, also one that failed or was stopped.
struct PictureRunReport {
  int64_t num_asked = 0;    ///< Pictures of the run.
  int64_t num_kept = 0;     ///< Of these, painted by an earlier run and not again.
  int64_t num_painted = 0;  ///< And by this one.
  int64_t num_sheets = 0;   ///< Pages of sheets that were drawn.
  NetworkPlace place = {};  ///< Where the U-Net is, once the model is open.
};

/// Paints each picture in a batch of its own, with the bytes that `sample` gives it, several side by side whatever their settings, and
/// writes it as soon as it is there (prompts/picture_folder.h); then the sheets, then the record. A run that was cut or failed goes on with
/// what is missing. Initial pictures are read, and each picture's settings checked, before the first is painted.
/// `on_painted` is told of kept and painted ones together, as by run_sample_job. Errors: kInvalidArgument (a setting that does not fit the
/// model), kFailedPrecondition (an initial picture that cannot be read or is another one; another model; another process paints into the
/// folder; after all is written, pictures whose bytes are not those that they must have), kCancelled, those of opening the model and of the
/// files.
Status paint_pictures(FileSystem& files, const PictureRun& run, const PictureModelOpener& open_model, std::stop_token stop,
                      PictureRunReport& report, const PaintingProgress& on_painted = {});

}  // namespace darkroom
