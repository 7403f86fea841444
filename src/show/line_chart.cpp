#include "darkroom/show/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>

#include "darkroom/show/html_page.h"

namespace darkroom {
namespace {

constexpr int kLeft = 64;
constexpr int kRight = 12;
constexpr int kTop = 30;
constexpr int kBottom = 38;
constexpr size_t kMaxPoints = 2000;
constexpr int kNumColours = 4;
constexpr double kMaxMagnitude = 1e300;  // So that the width of a range is finite.

struct Range {
  double low = 0;
  double high = 1;
};

using Points = std::vector<std::pair<double, double>>;

Points drawable_points(const Points& points, bool log_y) {
  Points kept;
  for (const auto& [x, y] : points) {
    if (std::abs(x) <= kMaxMagnitude && std::abs(y) <= kMaxMagnitude && (!log_y || y > 0)) {  // False for NaN.
      kept.emplace_back(x, log_y ? std::log10(y) : y);
    }
  }
  return kept;
}

// Keeps the first, lowest, highest and last point of each of `num_columns` equal cuts, so that no spike disappears.
Points thinned(const Points& points, size_t num_columns) {
  if (points.size() <= kMaxPoints) {
    return points;
  }
  Points kept;
  for (size_t column = 0; column < num_columns; ++column) {
    const size_t begin = points.size() * column / num_columns;
    const size_t end = points.size() * (column + 1) / num_columns;
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = points.begin() + static_cast<std::ptrdiff_t>(end);
    const auto [low, high] = std::minmax_element(first, last, [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<size_t> chosen = {begin, static_cast<size_t>(low - points.begin()), static_cast<size_t>(high - points.begin()), end - 1};
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const size_t index : chosen) {
      kept.push_back(points[index]);
    }
  }
  return kept;
}

Range range_of(const std::vector<Points>& curves, bool of_x) {
  std::optional<Range> range;
  for (const Points& curve : curves) {
    for (const auto& point : curve) {
      const double value = of_x ? point.first : point.second;
      range = range ? Range{std::min(range->low, value), std::max(range->high, value)} : Range{value, value};
    }
  }
  if (!range) {
    return {};
  }
  if (range->low == range->high) {
    const double margin = range->low == 0 ? 1 : std::abs(range->low) * 0.5;
    return {range->low - margin, range->high + margin};
  }
  return *range;
}

// About `count` round values (1, 2 or 5 times a power of ten) inside the range.
std::vector<double> round_ticks(const Range& range, int count) {
  const double raw_step = (range.high - range.low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw_step)));
  const double fraction = raw_step / power;
  const double step = power * (fraction < 1.5 ? 1 : fraction < 3.5 ? 2 : fraction < 7.5 ? 5 : 10);
  std::vector<double> ticks;
  const double first = std::ceil(range.low / step);
  for (int i = 0; i <= 2 * count; ++i) {  // Counted: where a step is below the values' precision, adding it changes nothing.
    const double tick = (first + i) * step;
    if (tick <= range.high + step * 1e-9) {
      ticks.push_back(std::abs(tick) < step * 1e-9 ? 0 : tick);
    }
  }
  return ticks;
}

// Logarithms of 1, 2 and 5 times powers of ten inside the range (itself of logarithms); round numbers of the exponent
// where it spans more than four decades or less than one tick.
std::vector<double> log_ticks(const Range& range) {
  std::vector<double> ticks;
  if (range.high - range.low <= 4) {
    for (int decade = static_cast<int>(std::floor(range.low)); decade <= static_cast<int>(std::floor(range.high)); ++decade) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double tick = decade + std::log10(factor);
        if (tick >= range.low && tick <= range.high) {
          ticks.push_back(tick);
        }
      }
    }
  }
  return ticks.size() >= 2 ? ticks : round_ticks(range, 5);
}

class Canvas {
 public:
  Canvas(const ChartOptions& options, Range x, Range y) : options_(options), x_(x), y_(y) {}

  double at_x(double value) const { return kLeft + (value - x_.low) / (x_.high - x_.low) * (options_.width - kLeft - kRight); }
  double at_y(double value) const {
    return options_.height - kBottom - (value - y_.low) / (y_.high - y_.low) * (options_.height - kTop - kBottom);
  }

  void draw_axes(std::string& svg) const {
    for (const double tick : options_.log_y ? log_ticks(y_) : round_ticks(y_, 5)) {
      const double shown = options_.log_y ? std::pow(10.0, tick) : tick;
      fmt::format_to(std::back_inserter(svg), "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
                     options_.width - kRight, at_y(tick), at_y(tick));
      fmt::format_to(std::back_inserter(svg), "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>", kLeft - 6, at_y(tick) + 4,
                     shown);
    }
    for (const double tick : round_ticks(x_, 6)) {
      fmt::format_to(std::back_inserter(svg), "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>", at_x(tick),
                     options_.height - kBottom + 16, tick);
    }
    fmt::format_to(std::back_inserter(svg), "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", options_.width - kRight,
                   options_.height - 6, escape_html(options_.x_label));
  }

  void draw_curve(std::string& svg, const Points& points, size_t index, bool is_faint) const {
    svg += fmt::format("<polyline class=\"curve curve-{}{}\" points=\"", index % kNumColours, is_faint ? " faint" : "");
    for (const auto& [x, y] : points) {
      fmt::format_to(std::back_inserter(svg), "{:.1f},{:.1f} ", at_x(x), at_y(y));
    }
    svg += "\"/>";
  }

 private:
  const ChartOptions& options_;
  Range x_;
  Range y_;
};

}  // namespace

std::string render_line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options) {
  std::vector<Points> curves;
  for (const ChartSeries& one : series) {
    curves.push_back(thinned(drawable_points(one.points, options.log_y), static_cast<size_t>(options.width)));
  }
  const Canvas canvas(options, range_of(curves, true), range_of(curves, false));
  std::string svg = fmt::format("<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", options.width, options.height,
                                escape_html(options.title));
  svg += fmt::format("<text class=\"title\" x=\"{}\" y=\"18\">{}</text>", kLeft, escape_html(options.title));
  canvas.draw_axes(svg);
  for (size_t index = 0; index < series.size(); ++index) {
    canvas.draw_curve(svg, curves[index], index, series[index].is_faint);
  }
  double legend_x = options.width - kRight;
  if (series.size() > 1) {
    for (size_t index = series.size(); index-- > 0;) {
      svg += fmt::format("<text class=\"legend-{}\" x=\"{}\" y=\"18\" text-anchor=\"end\">{}</text>", index % kNumColours, legend_x,
                         escape_html(series[index].name));
      legend_x -= 8.0 * static_cast<double>(series[index].name.size()) + 16;
    }
  }
  return svg + "</svg>";
}

}  // namespace darkroom
