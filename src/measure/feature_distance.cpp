#include "darkroom/measure/feature_distance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"

namespace darkroom {
namespace {

void check_features(const FeatureRows& a, const FeatureRows& b) {
  DARKROOM_CHECK(a.width == b.width && a.num_rows() >= 2 && b.num_rows() >= 2,
                 "two sets of features cannot be compared (widths, rows):", a.width, b.width, a.num_rows(), b.num_rows());
}

std::vector<double> mean_of(const FeatureRows& features) {
  std::vector<double> mean(features.width, 0.0);
  for (size_t i = 0; i < features.num_rows(); ++i) {
    const auto row = features.row(i);
    for (size_t j = 0; j < mean.size(); ++j) {
      mean[j] += row[j];
    }
  }
  for (double& value : mean) {
    value /= static_cast<double>(features.num_rows());
  }
  return mean;
}

void subtract_from_rows(FeatureRows& features, std::span<const double> mean) {
  for (size_t i = 0; i < features.values.size(); ++i) {
    features.values[i] -= mean[i % features.width];
  }
}

double squared_length(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) {
    sum += value * value;
  }
  return sum;
}

double dot(std::span<const double> a, std::span<const double> b) {
  // Four sums at a time: additions of doubles may not be reordered by the compiler.
  double sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= a.size(); i += 4) {
    for (size_t k = 0; k < 4; ++k) {
      sums[k] += a[i + k] * b[i + k];
    }
  }
  for (; i < a.size(); ++i) {
    sums[0] += a[i] * b[i];
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// One Householder step of upper_factor: takes what stands in column k below row k to zero.
void reflect_column(FeatureRows& rows, size_t k, std::vector<double>& v, std::vector<double>& sums) {
  const size_t width = rows.width;
  const size_t num_rows = rows.num_rows();
  double length = 0;
  for (size_t i = k; i < num_rows; ++i) {
    length = std::hypot(length, rows.values[i * width + k]);
  }
  if (length == 0) {
    return;
  }
  const double head = rows.values[k * width + k];
  const double alpha = head > 0 ? -length : length;
  v.assign(num_rows - k, 1.0);
  for (size_t i = k + 1; i < num_rows; ++i) {
    v[i - k] = rows.values[i * width + k] / (head - alpha);
  }
  const double factor = (alpha - head) / alpha;
  sums.assign(width, 0.0);
  for (size_t i = k; i < num_rows; ++i) {
    for (size_t j = k; j < width; ++j) {
      sums[j] += v[i - k] * rows.values[i * width + j];
    }
  }
  for (size_t i = k; i < num_rows; ++i) {
    for (size_t j = k; j < width; ++j) {
      rows.values[i * width + j] -= factor * v[i - k] * sums[j];
    }
  }
}

// F with F^T F = rows^T rows and at most `width` rows: the rows themselves, or the R of their QR decomposition.
FeatureRows upper_factor(FeatureRows rows, const std::stop_token& stop) {
  const size_t width = rows.width;
  if (rows.num_rows() <= width) {
    return rows;
  }
  std::vector<double> v, sums;
  for (size_t k = 0; k < width && !stop.stop_requested(); ++k) {
    reflect_column(rows, k, v, sums);
  }
  rows.values.resize(width * width);
  for (size_t i = 0; i < width; ++i) {
    std::fill_n(rows.values.begin() + static_cast<std::ptrdiff_t>(i * width), i, 0.0);
  }
  return rows;
}

// A factor F with F^T F = the covariance of rows whose mean is 0, with at most `width` rows.
FeatureRows covariance_factor(FeatureRows centred, const std::stop_token& stop) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(centred.num_rows() - 1));
  for (double& value : centred.values) {
    value *= scale;
  }
  return upper_factor(std::move(centred), stop);
}

// The products of each row of `a` with each of `b`, row by row.
std::vector<double> products(const FeatureRows& a, const FeatureRows& b, const std::stop_token& stop) {
  std::vector<double> values(a.num_rows() * b.num_rows());
  for (size_t i = 0; i < a.num_rows() && !stop.stop_requested(); ++i) {
    for (size_t j = 0; j < b.num_rows(); ++j) {
      values[i * b.num_rows() + j] = dot(a.row(i), b.row(j));
    }
  }
  return values;
}

double kernel(std::span<const double> x, std::span<const double> y) {
  const double value = dot(x, y) / static_cast<double>(x.size()) + 1;
  return value * value * value;
}

// The mean of the kernel over pairs of different rows.
double mean_within(const FeatureRows& features, const std::stop_token& stop) {
  double sum = 0;
  const size_t n = features.num_rows();
  for (size_t i = 0; i < n && !stop.stop_requested(); ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      sum += 2 * kernel(features.row(i), features.row(j));
    }
  }
  return sum / (static_cast<double>(n) * static_cast<double>(n - 1));
}

double mean_between(const FeatureRows& a, const FeatureRows& b, const std::stop_token& stop) {
  double sum = 0;
  for (size_t i = 0; i < a.num_rows() && !stop.stop_requested(); ++i) {
    for (size_t j = 0; j < b.num_rows(); ++j) {
      sum += kernel(a.row(i), b.row(j));
    }
  }
  return sum / (static_cast<double>(a.num_rows()) * static_cast<double>(b.num_rows()));
}

FeatureRows subset(const FeatureRows& features, size_t count, const CounterRandom& random) {
  std::vector<uint32_t> order(features.num_rows());
  shuffled_order(random, order);
  FeatureRows chosen{.width = features.width};
  for (size_t i = 0; i < count; ++i) {
    const auto row = features.row(order[i]);
    chosen.values.insert(chosen.values.end(), row.begin(), row.end());
  }
  return chosen;
}

}  // namespace

double frechet_distance(const FeatureRows& a, const FeatureRows& b, const std::stop_token& stop) {
  check_features(a, b);
  std::vector<double> between = mean_of(a);
  const std::vector<double> mean_b = mean_of(b);
  FeatureRows centred_a = a, centred_b = b;
  subtract_from_rows(centred_a, between);
  subtract_from_rows(centred_b, mean_b);
  for (size_t j = 0; j < between.size(); ++j) {
    between[j] -= mean_b[j];
  }
  const FeatureRows factor_a = covariance_factor(std::move(centred_a), stop);
  const FeatureRows factor_b = covariance_factor(std::move(centred_b), stop);
  const double root_trace = sum_of_singular_values(products(factor_a, factor_b, stop), factor_a.num_rows(), factor_b.num_rows(), stop);
  if (stop.stop_requested()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return squared_length(between) + squared_length(factor_a.values) + squared_length(factor_b.values) - 2 * root_trace;
}

double kernel_distance(const FeatureRows& a, const FeatureRows& b, const std::stop_token& stop) {
  check_features(a, b);
  const double distance = mean_within(a, stop) + mean_within(b, stop) - 2 * mean_between(a, b, stop);
  return stop.stop_requested() ? std::numeric_limits<double>::quiet_NaN() : distance;
}

double kernel_distance_of_subsets(const FeatureRows& a, const FeatureRows& b, const SubsetOptions& options) {
  check_features(a, b);
  const size_t size = std::min({a.num_rows(), b.num_rows(), options.subset_size});
  double sum = 0;
  for (int64_t k = 0; k < options.num_subsets; ++k) {
    const auto draw = [&](const char* name) { return CounterRandom(options.seed, Purpose::kSelect, static_cast<uint32_t>(k), name); };
    sum += kernel_distance(subset(a, size, draw("compare/subset/a")), subset(b, size, draw("compare/subset/b")));
  }
  return sum / static_cast<double>(options.num_subsets);
}

KernelComparison::KernelComparison(const FeatureRows& a, const FeatureRows& b, const FeatureRows& references, size_t per_prompt,
                                   const std::stop_token& stop)
    : num_prompts_(a.num_rows() / per_prompt),
      per_prompt_(static_cast<double>(per_prompt)),
      num_references_(static_cast<double>(references.num_rows())) {
  check_features(a, references);
  DARKROOM_CHECK(a.values.size() == b.values.size() && a.num_rows() % per_prompt == 0,
                 "two models' features differ in number (A, B):", a.num_rows(), b.num_rows());
  const FeatureRows* const features[2] = {&a, &b};
  for (size_t x = 0; x < 2; ++x) {
    reference_sums_[x].assign(num_prompts_, 0.0);
    for (size_t i = 0; i < a.num_rows() && !stop.stop_requested(); ++i) {
      for (size_t r = 0; r < references.num_rows(); ++r) {
        reference_sums_[x][i / per_prompt] += kernel(features[x]->row(i), references.row(r));
      }
    }
    for (size_t y = 0; y < 2; ++y) {
      auto& sums = pair_sums_[2 * x + y];
      sums.assign(num_prompts_ * num_prompts_, 0.0);
      for (size_t i = 0; i < a.num_rows() && !stop.stop_requested(); ++i) {
        for (size_t j = 0; j < a.num_rows(); ++j) {
          if (i != j) {
            sums[i / per_prompt * num_prompts_ + j / per_prompt] += kernel(features[x]->row(i), features[y]->row(j));
          }
        }
      }
    }
  }
}

// The mean of the kernel over pairs of different pictures, where prompt p counts weights[p] times.
double KernelComparison::within(std::span<const double> sums, std::span<const double> weights) const {
  double sum = 0;
  double num_pairs = 0;
  for (size_t p = 0; p < num_prompts_; ++p) {
    if (weights[p] == 0) {
      continue;
    }
    for (size_t q = 0; q < num_prompts_; ++q) {
      const double weight = weights[p] * weights[q];
      sum += weight * sums[p * num_prompts_ + q];
      num_pairs += weight * per_prompt_ * (p == q ? per_prompt_ - 1 : per_prompt_);
    }
  }
  return num_pairs == 0 ? 0 : sum / num_pairs;
}

double KernelComparison::resampled(std::span<const uint32_t> counts) const {
  const std::vector<double> weights(counts.begin(), counts.end());
  double num_prompts = 0;
  double to_references = 0;
  for (size_t p = 0; p < num_prompts_; ++p) {
    num_prompts += weights[p];
    to_references += weights[p] * (reference_sums_[0][p] - reference_sums_[1][p]);
  }
  return within(pair_sums_[0], weights) - within(pair_sums_[3], weights) -
         2 * to_references / (num_prompts * per_prompt_ * num_references_);
}

double KernelComparison::swapped(std::span<const uint8_t> swapped) const {
  double difference = 0;
  double to_references = 0;
  for (size_t p = 0; p < num_prompts_; ++p) {
    const double sign = swapped[p] != 0 ? -1 : 1;
    to_references += sign * (reference_sums_[0][p] - reference_sums_[1][p]);
    for (size_t q = 0; q < num_prompts_; ++q) {
      // What passes for A's pictures of p and q less what passes for B's.
      const size_t x = swapped[p] != 0 ? 1 : 0, y = swapped[q] != 0 ? 1 : 0;
      const size_t at = p * num_prompts_ + q;
      difference += pair_sums_[2 * x + y][at] - pair_sums_[2 * (1 - x) + (1 - y)][at];
    }
  }
  const double num_pictures = static_cast<double>(num_prompts_) * per_prompt_;
  return difference / (num_pictures * (num_pictures - 1)) - 2 * to_references / (num_pictures * num_references_);
}

FrechetComparison::FrechetComparison(const FeatureRows& a, const FeatureRows& b, const FeatureRows& references, size_t per_prompt,
                                     const std::stop_token& stop)
    : per_prompt_(per_prompt), width_(a.width), features_{a, b} {
  check_features(a, references);
  DARKROOM_CHECK(a.values.size() == b.values.size() && a.num_rows() % per_prompt == 0,
                 "two models' features differ in number (A, B):", a.num_rows(), b.num_rows());
  const std::vector<double> mean = mean_of(references);
  FeatureRows centred = references;
  subtract_from_rows(centred, mean);
  const FeatureRows factor = covariance_factor(std::move(centred), stop);
  for (FeatureRows& features : features_) {
    subtract_from_rows(features, mean);
  }
  // The products of both models' rows with the factor's, a column a picture: their QR decomposition keeps every singular value of rows
  // that are chosen and weighed, in as few numbers as there are pictures.
  const size_t num_rows = a.num_rows();
  FeatureRows turned{.width = 2 * num_rows, .values = std::vector<double>(factor.num_rows() * 2 * num_rows)};
  for (size_t r = 0; r < factor.num_rows() && !stop.stop_requested(); ++r) {
    for (size_t i = 0; i < turned.width; ++i) {
      turned.values[r * turned.width + i] = dot(features_[i / num_rows].row(i % num_rows), factor.row(r));
    }
  }
  const FeatureRows reduced = upper_factor(std::move(turned), stop);
  rank_ = reduced.num_rows();
  for (size_t i = 0; i < 2 * num_rows; ++i) {
    for (size_t r = 0; r < rank_; ++r) {
      crosses_[i / num_rows].push_back(reduced.values[r * reduced.width + i]);
    }
  }
}

// Less the trace of the references' covariance, which cancels. Both models' rows are known by their products with the factor.
double FrechetComparison::distance(std::span<const double> weights, std::span<const uint8_t> model_of_prompt) const {
  const size_t num_rows = features_[0].num_rows();
  const auto of_row = [&](size_t i) { return std::pair(weights[i / per_prompt_], size_t{model_of_prompt[i / per_prompt_]}); };
  if (rank_ == 0) {
    return 0;  // It was stopped before there was anything.
  }
  std::vector<double> mean(width_, 0.0), cross_mean(rank_, 0.0);
  double count = 0;
  double squares = 0;
  for (size_t i = 0; i < num_rows; ++i) {
    const auto [weight, x] = of_row(i);
    const auto row = features_[x].row(i);
    count += weight;
    squares += weight * squared_length(row);
    for (size_t j = 0; weight != 0 && j < width_; ++j) {
      mean[j] += weight * row[j];
    }
    for (size_t j = 0; weight != 0 && j < rank_; ++j) {
      cross_mean[j] += weight * crosses_[x][i * rank_ + j];
    }
  }
  for (double& value : mean) {
    value /= count;
  }
  std::vector<double> matrix;
  for (size_t i = 0; i < num_rows; ++i) {
    const auto [weight, x] = of_row(i);
    const double scale = std::sqrt(weight / (count - 1));
    for (size_t j = 0; weight != 0 && j < rank_; ++j) {
      matrix.push_back(scale * (crosses_[x][i * rank_ + j] - cross_mean[j] / count));
    }
  }
  const double from_references = squared_length(mean);
  const double trace = (squares - count * from_references) / (count - 1);
  const size_t matrix_rows = matrix.size() / rank_;
  return from_references + trace - 2 * sum_of_singular_values(std::move(matrix), matrix_rows, rank_);
}

double FrechetComparison::resampled(std::span<const uint32_t> counts) const {
  const std::vector<double> weights(counts.begin(), counts.end());
  const std::vector<uint8_t> a(counts.size(), 0), b(counts.size(), 1);
  return distance(weights, a) - distance(weights, b);
}

double FrechetComparison::swapped(std::span<const uint8_t> swapped) const {
  const std::vector<double> weights(swapped.size(), 1.0);
  std::vector<uint8_t> other(swapped.begin(), swapped.end());
  for (uint8_t& model : other) {
    model = model != 0 ? 0 : 1;
  }
  return distance(weights, swapped) - distance(weights, other);
}

}  // namespace darkroom
