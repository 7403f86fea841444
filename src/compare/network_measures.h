#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "comparison_record.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/measure/verdict.h"
#include "picture_networks.h"

namespace darkroom {

/// More pictures a model than this, and the Frechet distances are given without an interval: each of its thousands of resamples takes the
/// singular values of as many rows.
inline constexpr size_t kMostResampledPictures = 200;
/// Of the kernel distance, which keeps four sums per pair of prompts.
inline constexpr size_t kMostResampledPrompts = 2000;

/// The measures that need networks: those of --weights-dir that were chosen and can be computed.
class NetworkMeasures {
 public:
  /// Opens them. Nothing chosen: what the folder holds. Errors: kNotFound naming what the folder lacks, those of opening.
  static Result<NetworkMeasures> open(const CompareJob& job, const std::stop_token& stop);

  /// Takes a reference picture into account.
  Status add_reference(const Image& picture);
  /// Measures the comparison's pictures. `notes` gets what was left out. Errors: those of the pictures and networks, kCancelled.
  Result<std::vector<MeasureOutcome>> measure(FileSystem& files, const CompareRecord& record, const ResamplingOptions& options,
                                              std::vector<std::string>& notes);
  /// The files that were used: an array of {path, sha256}.
  const nlohmann::json& networks() const { return networks_; }

 private:
  // One network and what it saw of the references.
  struct Seen {
    FeatureRows references = {};
    std::vector<Image> waiting = {};
  };

  explicit NetworkMeasures(const CompareJob& job, std::stop_token stop) : job_(&job), stop_(std::move(stop)) {}
  Status open_chosen();
  Status note_file(const std::string& path);
  Status flush(PictureNetwork& network, Seen& seen);
  Result<FeatureRows> features_of(FileSystem& files, const CompareRecord& record, Side side, PictureNetwork& network);
  Result<MeasureOutcome> clip_score(FileSystem& files, const CompareRecord& record, const ResamplingOptions& options);
  Result<std::vector<MeasureOutcome>> distances(FileSystem& files, const CompareRecord& record, const ResamplingOptions& options,
                                                PictureNetwork& network, Seen& seen, bool is_clip, std::vector<std::string>& notes);
  bool wants(const char* name) const;

  const CompareJob* job_;
  std::stop_token stop_;
  std::unique_ptr<ClipNetwork> clip_;
  std::unique_ptr<PictureNetwork> inception_;
  Seen clip_seen_;
  Seen inception_seen_;
  nlohmann::json networks_ = nlohmann::json::array();
};

}  // namespace darkroom
