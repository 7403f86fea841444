#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/train/recipe.h"

namespace darkroom {

/// What a rank's device could at most.
struct RankPeak {
  double tflops = 0;        ///< 10^12 floating-point operations per second; 0: not known.
  bool is_measured = true;  ///< At this start, in products of matrices of the step's type; else as the user says.
};

/// What run.json says of a run besides its starts.
struct RunFacts {
  std::string component;   ///< What is trained: "unet" or "vae".
  int64_t parameters = 0;  ///< Trained scalars.
  int64_t ranks = 1;       ///< Processes that train together.
  std::string device;      ///< Where they compute: "cpu", "cuda:0".
  RankPeak peak;           ///< What MFU is the share of.
  Recipe recipe;           ///< As resolved at this start.
};

/// run.json of a run folder (docs/formats/run_folder.md): what is trained, with which recipe, on which machines, and the
/// wall time that it took. For people and programs that look at a run; training itself reads back only the wall time.
/// Thread safety: one object, one thread.
class RunFactsFile {
 public:
  /// Takes over what earlier starts recorded: starts from step `steps_done` on are forgotten, because their steps are about
  /// to be repeated. `logged_seconds`: the wall time that the metrics know of, for a run whose last save was not recorded.
  /// Errors: kCorruptData (an unreadable run.json), those of the file system.
  static Result<std::unique_ptr<RunFactsFile>> open(FileSystem& files, const std::string& path, const RunFacts& facts, int64_t steps_done,
                                                    double logged_seconds);

  /// Wall time of all starts before this one, as far as their steps count.
  double seconds_before() const { return seconds_before_; }
  /// Records that `steps_done` steps took `seconds` of wall time in all, in one atomic step.
  Status write(int64_t steps_done, double seconds);
  /// Records which side of this start waited for the other (OnlineBalance).
  Status write_online(const nlohmann::json& balance);

 private:
  Status store() const;

  RunFactsFile(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}

  FileSystem& files_;
  std::string path_;
  nlohmann::ordered_json content_;
  double seconds_before_ = 0;
};

/// The step of the newest checkpoint that run.json tells of; 0 without a file, or where it tells of none.
/// Errors: as RunFactsFile::open.
Result<int64_t> recorded_checkpoint_step(FileSystem& files, const std::string& path);

}  // namespace darkroom
