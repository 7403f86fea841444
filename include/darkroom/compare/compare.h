#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/paint/sample_job.h"

namespace darkroom {

/// One of the two models of a comparison.
struct CompareSide {
  std::string model = {};     ///< As the report names it.
  std::string weights = {};   ///< "ema" or "unet", of a checkpoint.
  std::string identity = {};  ///< A digest of its files: a folder whose pictures are of other weights is not gone on with.
  PainterOpener open = {};
};

/// What `--metrics` takes.
inline constexpr const char* kCompareMetrics[] = {"psnr", "retrieval", "palette", "clip", "clip-fid", "fid", "kid"};

/// A run of `compare`: two models paint the same prompts from the same noise with the same settings.
struct CompareJob {
  CompareSide a = {};
  CompareSide b = {};
  std::string prompts_file = {};  ///< One prompt a line, each once.
  std::string output = {};        ///< Folder of the comparison: new, empty, or one of these very settings.
  int num_seeds = 1;              ///< Pictures of a prompt and model.
  uint64_t seed = 0;              ///< Picture j of prompt i has seed + i x num_seeds + j. Also of all resampling and of the vote's order.
  /// The settings of both; the job fills in prompts and seeds. A picture is a batch of its own (see SampleJob).
  PaintRequest request = SampleJob().request;
  int workers = 0;                        ///< See SampleJob; changes no bit.
  int threads = 1;                        ///< That operations use: changes bits, so it is recorded.
  NetworkPlace place = {};                ///< Where the networks will be: recorded.
  std::string references = {};            ///< Image dataset whose captions are prompts; empty: none.
  std::string decoder_program = {};       ///< Decodes the references; empty: this process does.
  std::vector<std::string> metrics = {};  ///< Of kCompareMetrics; empty: all that can be measured.
  std::string weights_dir = {};           ///< Folder with the networks that clip, clip-fid, fid and kid need; empty: none.
  double error_rate = 0.05;               ///< How often equal models may be told apart.
  int64_t num_resamples = 2000;

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// How far a comparison came, also one that failed or was stopped.
struct CompareReport {
  int64_t num_asked = 0;    ///< Pictures of both models.
  int64_t num_painted = 0;  ///< In this run.
  int64_t num_found = 0;    ///< That an earlier run had painted.
  nlohmann::json report;    ///< report.json; null until it is written.
};

/// Paints what is missing and writes the comparison (docs/formats/comparison.md): the pictures, sheet.png, report.json, vote.html and,
/// last, report.html. A run that was cut goes on: a picture that is there is not painted again, and would have the same bytes. Errors:
/// kInvalidArgument (settings, prompts that are none), kFailedPrecondition (another comparison's folder, or one that another process works
/// in; models that share no size, sampler or latents; a picture of values that are no numbers; references that do not fit), kNotFound (a
/// network of weights_dir), kCorruptData (damaged files in the folder), kCancelled, those of opening the models and of the files.
Status run_comparison(FileSystem& files, const CompareJob& job, const std::stop_token& stop, CompareReport& report,
                      const PaintingProgress& on_painted = {});

/// Reads votes that vote.html exported, of one person each, puts what they amount to into report.json (`votes`) and writes report.html
/// anew. Returns that part of the report. Errors: kNotFound (no finished comparison), those of read_votes, those of the files.
Result<nlohmann::json> count_comparison_votes(FileSystem& files, const std::string& output, const std::vector<std::string>& vote_files);

}  // namespace darkroom
