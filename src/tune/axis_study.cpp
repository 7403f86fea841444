#include "axis_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "darkroom/core/median.h"

namespace darkroom {
namespace {

constexpr size_t kMostLabels = 6;      // An axis with more values is shown in thirds.
constexpr size_t kFewestForRanks = 4;  // Of fewer trials every order is chance.

std::optional<double> numeric_value(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::string setting_of(const TrialSettings& settings, const std::string& key) {
  const auto found = std::find_if(settings.begin(), settings.end(), [&](const auto& setting) { return setting.first == key; });
  return found == settings.end() ? "" : found->second;
}

// Ranks from 1 on; equal values share the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) {
      ++end;
    }
    for (size_t i = begin; i < end; ++i) {
      ranks[order[i]] = 0.5 * static_cast<double>(begin + 1 + end);
    }
    begin = end;
  }
  return ranks;
}

AxisBin bin_of(std::string label, const std::vector<double>& losses) {
  return {.label = std::move(label),
          .num_trials = static_cast<int64_t>(losses.size()),
          .best = *std::min_element(losses.begin(), losses.end()),
          .median = median(losses)};
}

// One bin for each value, in the order of the values.
std::vector<AxisBin> bins_of_values(const std::vector<std::pair<double, double>>& points, const std::vector<std::string>& labels) {
  std::vector<double> values;
  for (const auto& [value, loss] : points) {
    values.push_back(value);
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::vector<AxisBin> bins;
  for (const double value : values) {
    std::vector<double> losses;
    std::string label;
    for (size_t i = 0; i < points.size(); ++i) {
      if (points[i].first == value) {
        losses.push_back(points[i].second);
        label = labels[i];
      }
    }
    bins.push_back(bin_of(label, losses));
  }
  return bins;
}

// The trials in the order of their values, in thirds.
std::vector<AxisBin> bins_of_thirds(std::vector<std::pair<double, double>> points) {
  constexpr size_t kThirds = 3;
  std::sort(points.begin(), points.end());
  std::vector<AxisBin> bins;
  for (size_t third = 0; third < kThirds; ++third) {
    const size_t begin = points.size() * third / kThirds, end = points.size() * (third + 1) / kThirds;
    std::vector<double> losses;
    for (size_t i = begin; i < end; ++i) {
      losses.push_back(points[i].second);
    }
    if (!losses.empty()) {
      bins.push_back(bin_of(fmt::format("{:.3g} to {:.3g}", points[begin].first, points[end - 1].first), losses));
    }
  }
  return bins;
}

AxisStudy study_axis(const SearchAxis& axis, const std::vector<StudiedTrial>& trials) {
  AxisStudy study{.key = axis.key};
  std::vector<std::string> labels;
  bool is_numeric = true;
  for (const StudiedTrial& trial : trials) {
    labels.push_back(setting_of(trial.settings, axis.key));
    is_numeric = is_numeric && numeric_value(labels.back()).has_value();
  }
  std::vector<std::string> distinct = labels;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (size_t i = 0; i < trials.size(); ++i) {
    const auto place = std::lower_bound(distinct.begin(), distinct.end(), labels[i]) - distinct.begin();
    study.points.emplace_back(is_numeric ? *numeric_value(labels[i]) : static_cast<double>(place), trials[i].loss);
  }
  if (trials.empty()) {
    return study;
  }
  study.bins = distinct.size() <= kMostLabels ? bins_of_values(study.points, labels) : bins_of_thirds(study.points);
  const auto [low, high] = std::minmax_element(study.points.begin(), study.points.end());
  study.is_log = is_numeric && low->first > 0 && high->first >= 8 * low->first;
  if (is_numeric) {
    study.rank_correlation = rank_correlation(study.points);
    study.chance = std::min(1.0, 1.96 / std::sqrt(static_cast<double>(std::max<size_t>(2, trials.size()) - 1)));
  }
  return study;
}

}  // namespace

std::optional<double> rank_correlation(const std::vector<std::pair<double, double>>& pairs) {
  if (pairs.size() < kFewestForRanks) {
    return std::nullopt;
  }
  std::vector<double> xs, ys;
  for (const auto& [x, y] : pairs) {
    xs.push_back(x);
    ys.push_back(y);
  }
  const std::vector<double> x_ranks = ranks_of(xs), y_ranks = ranks_of(ys);
  const double mean = 0.5 * static_cast<double>(pairs.size() + 1);
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    xx += (x_ranks[i] - mean) * (x_ranks[i] - mean);
    yy += (y_ranks[i] - mean) * (y_ranks[i] - mean);
    xy += (x_ranks[i] - mean) * (y_ranks[i] - mean);
  }
  return xx > 0 && yy > 0 ? std::optional(xy / std::sqrt(xx * yy)) : std::nullopt;
}

std::vector<AxisStudy> study_axes(const std::vector<SearchAxis>& axes, const std::vector<StudiedTrial>& trials) {
  std::vector<AxisStudy> studies;
  for (const SearchAxis& axis : axes) {
    studies.push_back(study_axis(axis, trials));
  }
  return studies;
}

}  // namespace darkroom
