#include "picture_scores.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "darkroom/measure/picture_distance.h"
#include "painting.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

/// Adds up one prompt's pictures.
class PromptScorer {
 public:
  PromptScorer(const CompareReferences* references, size_t prompt) : references_(references) {
    if (references != nullptr && references->of_prompt.contains(prompt)) {
      own_ = &references->of_prompt.at(prompt);
      own_palette_.emplace(own_->picture);
      scores_.has_reference = true;
    }
  }

  void add(const std::array<Image, 2>& pictures) {
    const std::array<Palette, 2> palettes = {Palette(pictures[0]), Palette(pictures[1])};
    scores_.between_psnr_db += psnr_db(pictures[0], pictures[1]);
    scores_.between_palette += palette_distance(palettes[0], palettes[1]);
    for (size_t side = 0; own_ != nullptr && side < 2; ++side) {
      scores_.psnr_db[side] += psnr_db(pictures[side], own_->picture);
      scores_.palette[side] += palette_distance(palettes[side], *own_palette_);
      const int64_t rank = rank_of_own(retrieval_form(pictures[side]), own_->number, references_->all);
      scores_.top1[side] += rank < 1 ? 1 : 0;
      scores_.top5[side] += rank < 5 ? 1 : 0;
    }
    ++num_seeds_;
  }

  PromptScores mean() const {
    PromptScores mean = scores_;
    mean.between_psnr_db /= num_seeds_;
    mean.between_palette /= num_seeds_;
    for (auto* values : {&mean.psnr_db, &mean.palette, &mean.top1, &mean.top5}) {
      for (double& value : *values) {
        value /= num_seeds_;
      }
    }
    return mean;
  }

 private:
  const CompareReferences* references_;
  const CompareReferences::Own* own_ = nullptr;
  std::optional<Palette> own_palette_;
  PromptScores scores_;
  double num_seeds_ = 0;
};

// Means over prompts with a reference of one kind of score.
MeasureOutcome outcome_of(const PictureScores& scores, const MeasureOutcome& described, std::array<double, 2> PromptScores::*values,
                          const ResamplingOptions& options) {
  std::vector<double> a, b;
  for (const PromptScores& prompt : scores.prompts) {
    if (prompt.has_reference) {
      a.push_back((prompt.*values)[0]);
      b.push_back((prompt.*values)[1]);
    }
  }
  return compare_scores(described, a, b, options);
}

Json between(const PictureScores& scores, const char* name, const char* label, const char* unit, double PromptScores::*value,
             const ResamplingOptions& options) {
  std::vector<double> values;
  for (const PromptScores& prompt : scores.prompts) {
    values.push_back(prompt.*value);
  }
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  const Interval interval = bootstrap_interval(values.size(), resampled_mean(values), options);
  Json result = {{"name", name}, {"label", label}, {"unit", unit}, {"value", mean}, {"low", nullptr}, {"high", nullptr}};
  if (values.size() > 1) {
    result["low"] = interval.low;
    result["high"] = interval.high;
  }
  return result;
}

}  // namespace

bool is_chosen(const std::vector<std::string>& metrics, std::string_view name) {
  return metrics.empty() || std::ranges::find(metrics, name) != metrics.end();
}

Result<PictureScores> score_pictures(FileSystem& files, const std::string& output, const CompareRecord& record,
                                     const CompareReferences* references, const std::stop_token& stop) {
  PictureScores scores;
  for (size_t prompt = 0; prompt < record.num_prompts(); ++prompt) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped on request while measuring pictures; the same command goes on");
    }
    PromptScorer scorer(references, prompt);
    for (size_t seed = 0; seed < record.num_seeds(); ++seed) {
      std::array<Image, 2> pictures;
      for (const Side side : kSides) {
        DARKROOM_ASSIGN_OR_RETURN(pictures[static_cast<size_t>(side)],
                                  read_compared_picture(files, picture_path(output, side, prompt, seed), record.shared));
      }
      scores.num_identical += pictures[0] == pictures[1] ? 1 : 0;
      scorer.add(pictures);
    }
    scores.prompts.push_back(scorer.mean());
  }
  return scores;
}

std::vector<MeasureOutcome> reference_measures(const PictureScores& scores, const std::vector<std::string>& metrics,
                                               const ResamplingOptions& options) {
  std::vector<MeasureOutcome> measures;
  const bool has_references = std::ranges::any_of(scores.prompts, &PromptScores::has_reference);
  if (has_references && is_chosen(metrics, "psnr")) {
    measures.push_back(outcome_of(scores, {.name = "psnr", .unit = "dB"}, &PromptScores::psnr_db, options));
  }
  if (has_references && is_chosen(metrics, "retrieval")) {
    measures.push_back(outcome_of(scores, {.name = "retrieval_top1"}, &PromptScores::top1, options));
    measures.push_back(outcome_of(scores, {.name = "retrieval_top5"}, &PromptScores::top5, options));
  }
  if (has_references && is_chosen(metrics, "palette")) {
    measures.push_back(
        outcome_of(scores, {.name = "palette", .unit = "grey levels", .higher_is_better = false}, &PromptScores::palette, options));
  }
  return measures;
}

Json between_models(const PictureScores& scores, const ResamplingOptions& options) {
  return Json::array({between(scores, "psnr", "PSNR of A's and B's pictures", "dB", &PromptScores::between_psnr_db, options),
                      between(scores, "palette", "palette distance", "grey levels", &PromptScores::between_palette, options)});
}

}  // namespace darkroom
