#pragma once

#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Where a demo writes; every path lies in the folder of OUT.
struct DemoFolder {
  std::string path;

  std::string marker() const;         ///< .darkroom-demo: the sign that the folder is a demo's.
  std::string corpus() const;         ///< The small web: pictures, urls.parquet, web.json, expected.json.
  std::string images() const;         ///< What download made.
  std::string latents() const;        ///< What process made.
  std::string train_latents() const;  ///< The rows of latents() that are trained on.
  std::string run() const;            ///< The training run.
  std::string trial_run() const;      ///< The short run that measures a step; removed afterwards.
  std::string sheet() const;          ///< Prompts x {corpus picture, decoded latents, trained now, shipped}.
  std::string summary() const;        ///< summary.json.
};

/// Makes an empty place for a demo: a new folder, or an older demo's folder without what that demo wrote (other files in it
/// stay). Errors: kFailedPrecondition for a file, and for a folder that holds something but no marker: nothing is removed then.
Result<DemoFolder> prepare_demo_folder(FileSystem& files, const std::string& path);

}  // namespace darkroom
