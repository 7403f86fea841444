#include "network_measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "darkroom/core/utf8.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "painting.h"
#include "picture_scores.h"

namespace darkroom {
namespace {

constexpr size_t kPicturesACall = 16;

void append(FeatureRows& rows, FeatureRows more) {
  rows.width = more.width;
  rows.values.insert(rows.values.end(), more.values.begin(), more.values.end());
}

MeasureOutcome distance_outcome(const char* name, double a, double b, size_t num_prompts) {
  MeasureOutcome outcome{.name = name, .higher_is_better = false};
  outcome.a = a;
  outcome.b = b;
  outcome.difference = a - b;
  outcome.num_prompts = num_prompts;
  return outcome;
}

template <typename Comparison>
void resample(MeasureOutcome& outcome, const Comparison& comparison, const ResamplingOptions& options) {
  const BootstrapOutcome found = bootstrap(
      outcome.num_prompts, [&](std::span<const uint32_t> counts) { return comparison.resampled(counts); }, options);
  outcome.interval = found.interval;
  outcome.standard_error = found.standard_error;
  outcome.p = randomisation_p(
      outcome.num_prompts, [&](std::span<const uint8_t> swapped) { return comparison.swapped(swapped); }, options);
}

}  // namespace

bool NetworkMeasures::wants(const char* name) const { return is_chosen(job_->metrics, name); }

Status NetworkMeasures::note_file(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const FileDigest digest, digest_file(local_files(), path, stop_));
  networks_.push_back({{"path", replace_invalid_utf8(path).first}, {"sha256", digest.sha256}});
  return Status::ok();
}

Status NetworkMeasures::open_chosen() {
  const std::string clip_config = clip_folder(job_->weights_dir) + "/config.json";
  DARKROOM_ASSIGN_OR_RETURN(const bool has_clip, local_files().exists(clip_config));
  DARKROOM_ASSIGN_OR_RETURN(const bool has_inception, local_files().exists(inception_path(job_->weights_dir)));
  const bool is_free = job_->metrics.empty();
  if (is_free && !has_clip && !has_inception) {
    return Status::not_found("--weights-dir holds neither clip/config.json nor inception-2015-12-05.pt:", job_->weights_dir);
  }
  if (is_free ? has_clip : wants("clip") || wants("clip-fid")) {
    DARKROOM_ASSIGN_OR_RETURN(clip_, open_clip_network(clip_folder(job_->weights_dir)));
    DARKROOM_ASSIGN_OR_RETURN(const auto found, local_files().list(clip_folder(job_->weights_dir)));
    for (const FileInfo& info : found) {
      DARKROOM_RETURN_IF_ERROR(info.path.ends_with(".safetensors") ? note_file(info.path) : Status::ok());
    }
  }
  if (is_free ? has_inception : wants("fid") || wants("kid")) {
    DARKROOM_ASSIGN_OR_RETURN(inception_, open_inception_network(inception_path(job_->weights_dir)));
    DARKROOM_RETURN_IF_ERROR(note_file(inception_path(job_->weights_dir)));
  }
  return Status::ok();
}

Result<NetworkMeasures> NetworkMeasures::open(const CompareJob& job, const std::stop_token& stop) {
  NetworkMeasures measures(job, stop);
  if (!job.weights_dir.empty()) {
    DARKROOM_RETURN_IF_ERROR(measures.open_chosen().with_context("--weights-dir"));
  }
  return measures;
}

Status NetworkMeasures::flush(PictureNetwork& network, Seen& seen) {
  if (!seen.waiting.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(FeatureRows rows, network.features(seen.waiting));
    append(seen.references, std::move(rows));
    seen.waiting.clear();
  }
  return Status::ok();
}

Status NetworkMeasures::add_reference(const Image& picture) {
  const auto add = [&](PictureNetwork* network, Seen& seen, bool is_wanted) -> Status {
    if (network == nullptr || !is_wanted) {
      return Status::ok();
    }
    seen.waiting.push_back(picture);
    return seen.waiting.size() < kPicturesACall ? Status::ok() : flush(*network, seen);
  };
  DARKROOM_RETURN_IF_ERROR(add(clip_.get(), clip_seen_, wants("clip-fid")));
  return add(inception_.get(), inception_seen_, true);
}

Result<FeatureRows> NetworkMeasures::features_of(FileSystem& files, const CompareRecord& record, Side side, PictureNetwork& network) {
  FeatureRows rows;
  for (size_t prompt = 0; prompt < record.num_prompts(); ++prompt) {
    if (stop_.stop_requested()) {
      return Status::cancelled("stopped on request while measuring pictures; the same command goes on");
    }
    std::vector<Image> pictures;
    for (size_t seed = 0; seed < record.num_seeds(); ++seed) {
      DARKROOM_ASSIGN_OR_RETURN(Image picture, read_compared_picture(files, picture_path(job_->output, side, prompt, seed), record.shared));
      pictures.push_back(std::move(picture));
    }
    DARKROOM_ASSIGN_OR_RETURN(FeatureRows more, network.features(pictures));
    append(rows, std::move(more));
  }
  return rows;
}

Result<MeasureOutcome> NetworkMeasures::clip_score(FileSystem& files, const CompareRecord& record, const ResamplingOptions& options) {
  const std::vector<std::string> prompts = record.prompts();
  std::vector<double> scores[2];
  for (size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    if (stop_.stop_requested()) {
      return Status::cancelled("stopped on request while measuring pictures; the same command goes on");
    }
    for (const Side side : kSides) {
      std::vector<Image> pictures;
      for (size_t seed = 0; seed < record.num_seeds(); ++seed) {
        DARKROOM_ASSIGN_OR_RETURN(Image picture,
                                  read_compared_picture(files, picture_path(job_->output, side, prompt, seed), record.shared));
        pictures.push_back(std::move(picture));
      }
      DARKROOM_ASSIGN_OR_RETURN(const std::vector<double> cosines, clip_->cosines(pictures, prompts[prompt]));
      double sum = 0;
      for (const double cosine : cosines) {
        sum += 100 * std::max(0.0, cosine);  // Hessel et al. 2021, with the scale that torchmetrics gives it.
      }
      scores[static_cast<size_t>(side)].push_back(sum / static_cast<double>(cosines.size()));
    }
  }
  return compare_scores({.name = "clip_score"}, scores[0], scores[1], options);
}

Result<std::vector<MeasureOutcome>> NetworkMeasures::distances(FileSystem& files, const CompareRecord& record,
                                                               const ResamplingOptions& options, PictureNetwork& network, Seen& seen,
                                                               bool is_clip, std::vector<std::string>& notes) {
  std::vector<MeasureOutcome> measures;
  DARKROOM_RETURN_IF_ERROR(flush(network, seen));
  const size_t num_prompts = record.num_prompts();
  const size_t num_pictures = num_prompts * record.num_seeds();
  const char* frechet = is_clip ? "clip_fid" : "fid";
  if (seen.references.num_rows() < 2 || num_pictures < 2) {
    notes.push_back(fmt::format("{} was not measured: it takes two pictures and two references.", frechet));
    return measures;
  }
  DARKROOM_ASSIGN_OR_RETURN(const FeatureRows a, features_of(files, record, Side::kA, network));
  DARKROOM_ASSIGN_OR_RETURN(const FeatureRows b, features_of(files, record, Side::kB, network));
  if (wants(is_clip ? "clip-fid" : "fid")) {
    MeasureOutcome outcome =
        distance_outcome(frechet, frechet_distance(a, seen.references, stop_), frechet_distance(b, seen.references, stop_), num_prompts);
    if (num_pictures <= kMostResampledPictures) {
      resample(outcome, FrechetComparison(a, b, seen.references, record.num_seeds(), stop_), options);
    } else {
      notes.push_back(fmt::format("{} has no interval and decides nothing: it is resampled for at most {} pictures of a model. {}", frechet,
                                  kMostResampledPictures,
                                  is_clip ? "The CLIP score has no such bound." : "The kernel distance (kid) is resampled for more."));
    }
    measures.push_back(std::move(outcome));
  }
  if (!is_clip && wants("kid")) {
    MeasureOutcome outcome =
        distance_outcome("kid", kernel_distance(a, seen.references, stop_), kernel_distance(b, seen.references, stop_), num_prompts);
    if (num_prompts <= kMostResampledPrompts) {
      resample(outcome, KernelComparison(a, b, seen.references, record.num_seeds(), stop_), options);
    } else {
      notes.push_back(
          fmt::format("kid has no interval and decides nothing: it is resampled for at most {} prompts.", kMostResampledPrompts));
    }
    measures.push_back(std::move(outcome));
  }
  return measures;
}

Result<std::vector<MeasureOutcome>> NetworkMeasures::measure(FileSystem& files, const CompareRecord& record,
                                                             const ResamplingOptions& options, std::vector<std::string>& notes) {
  std::vector<MeasureOutcome> measures;
  if (clip_ && wants("clip")) {
    DARKROOM_ASSIGN_OR_RETURN(measures.emplace_back(), clip_score(files, record, options));
  }
  const auto add = [&](PictureNetwork& network, Seen& seen, bool is_clip) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(auto more, distances(files, record, options, network, seen, is_clip, notes));
    std::move(more.begin(), more.end(), std::back_inserter(measures));
    return Status::ok();
  };
  const bool has_references = !job_->references.empty();
  if (clip_ && has_references && wants("clip-fid")) {
    DARKROOM_RETURN_IF_ERROR(add(*clip_, clip_seen_, true));
  }
  if (inception_ && has_references) {
    DARKROOM_RETURN_IF_ERROR(add(*inception_, inception_seen_, false));
  }
  return measures;
}

}  // namespace darkroom
