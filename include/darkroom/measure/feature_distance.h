#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "darkroom/measure/resampling.h"

namespace darkroom {

// Thousands of pictures take minutes: once `stop` is requested, each function and constructor below that has it ends early, and what it
// gives then says nothing; a distance is NaN.

/// What a network sees in pictures: a row of `width` numbers a picture.
struct FeatureRows {
  size_t width = 0;
  std::vector<double> values = {};  ///< num_rows() * width, row by row.

  size_t num_rows() const { return width == 0 ? 0 : values.size() / width; }
  std::span<const double> row(size_t i) const { return std::span(values).subspan(i * width, width); }
};

/// Sum of the singular values of a num_rows x num_columns matrix, row by row, to a few units of rounding of the largest one, by
/// Householder's bidiagonalisation (Golub and Kahan 1965) and QL steps on its symmetric form. REQUIRES: both at least 1, all values finite.
double sum_of_singular_values(std::vector<double> matrix, size_t num_rows, size_t num_columns, const std::stop_token& stop = {});

/// Frechet distance of two normal distributions with the mean and the covariance (of divisor n - 1) of two sets of features (Heusel et al.
/// 2017, FID): |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^1/2). The trace of the root is taken as the sum of singular values of a product of
/// factors of C1 and C2, so that singular covariances (fewer pictures than features) cost no digits and need no offset.
/// REQUIRES: equal widths, at least 2 rows each, all values finite. Thread safety of all here: pure.
double frechet_distance(const FeatureRows& a, const FeatureRows& b, const std::stop_token& stop = {});

/// The unbiased squared kernel distance (Binkowski et al. 2018, KID) with the kernel (x.y / width + 1)^3. May be below 0.
/// REQUIRES: as frechet_distance.
double kernel_distance(const FeatureRows& a, const FeatureRows& b, const std::stop_token& stop = {});

/// clean-fid's estimate of it: the mean over `num_subsets` pairs of subsets of min(rows of either, subset_size) rows, drawn with (seed,
/// kSelect, epoch of the subset, "compare/subset/a" or "compare/subset/b"). The mean of cross terms leaves nothing out. REQUIRES: as
/// frechet_distance.
struct SubsetOptions {
  int64_t num_subsets = 100;
  size_t subset_size = 1000;
  uint64_t seed = 0;
};
double kernel_distance_of_subsets(const FeatureRows& a, const FeatureRows& b, const SubsetOptions& options);

/// How much nearer one of two models comes to reference pictures, as a function of the prompts: what bootstrap_interval and randomisation_p
/// ask. Rows are prompt by prompt, `per_prompt` each. The object outlives the functions. REQUIRES: as frechet_distance; a and b of as many
/// rows, a multiple of per_prompt.
class KernelComparison {
 public:
  KernelComparison(const FeatureRows& a, const FeatureRows& b, const FeatureRows& references, size_t per_prompt,
                   const std::stop_token& stop = {});
  /// Distance of A minus distance of B. Rows that a resample holds twice are not compared with themselves.
  double resampled(std::span<const uint32_t> counts) const;
  double swapped(std::span<const uint8_t> swapped) const;

 private:
  double within(std::span<const double> sums, std::span<const double> weights) const;

  size_t num_prompts_;
  double per_prompt_;
  double num_references_;
  // Sums of the kernel over pairs of different pictures, prompt by prompt; [2 x + y] of model x with model y.
  std::vector<double> pair_sums_[4];
  std::vector<double> reference_sums_[2];  // Of each prompt's pictures with all references.
};

/// The same for the Frechet distance, whose every evaluation takes singular values of as many rows as a model has pictures.
class FrechetComparison {
 public:
  FrechetComparison(const FeatureRows& a, const FeatureRows& b, const FeatureRows& references, size_t per_prompt,
                    const std::stop_token& stop = {});
  double resampled(std::span<const uint32_t> counts) const;
  double swapped(std::span<const uint8_t> swapped) const;

 private:
  double distance(std::span<const double> weights, std::span<const uint8_t> model_of_prompt) const;

  size_t per_prompt_;
  size_t width_;
  size_t rank_;                     // Columns of `crosses_`.
  FeatureRows features_[2];         // Less the references' mean.
  std::vector<double> crosses_[2];  // Each picture's products with the rows of a factor of the references' covariance.
};

}  // namespace darkroom
