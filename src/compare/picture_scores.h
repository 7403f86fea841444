#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <vector>

#include "comparison_record.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/measure/verdict.h"
#include "references.h"

namespace darkroom {

/// What the pictures of a prompt say without any network, as means over its seeds; [0] of A, [1] of B.
struct PromptScores {
  double between_psnr_db = 0;  ///< Of A's and B's picture.
  double between_palette = 0;
  bool has_reference = false;  ///< The rest is of prompts with one.
  std::array<double, 2> psnr_db = {};
  std::array<double, 2> palette = {};
  std::array<double, 2> top1 = {};
  std::array<double, 2> top5 = {};
};

struct PictureScores {
  std::vector<PromptScores> prompts = {};
  int64_t num_identical = 0;  ///< Pairs of the same pixels.
};

/// Reads the comparison's pictures prompt by prompt. `references` may be null. Errors: those of read_compared_picture, kCancelled.
Result<PictureScores> score_pictures(FileSystem& files, const std::string& output, const CompareRecord& record,
                                     const CompareReferences* references, const std::stop_token& stop);

/// The measures that decide, of those that were chosen (empty: all), from scores of pictures with references.
std::vector<MeasureOutcome> reference_measures(const PictureScores& scores, const std::vector<std::string>& metrics,
                                               const ResamplingOptions& options);

/// How far the models are apart, whichever is better: an array of {name, label, unit, value, low, high}.
nlohmann::json between_models(const PictureScores& scores, const ResamplingOptions& options);

/// Whether `name` was chosen, or nothing was.
bool is_chosen(const std::vector<std::string>& metrics, std::string_view name);

}  // namespace darkroom
