#include "scatter_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "darkroom/show/html_page.h"
#include "darkroom/show/line_chart.h"

namespace darkroom {
namespace {

constexpr double kScatterWidth = 640, kScatterHeight = 260, kScatterLeft = 58, kScatterRight = 626, kScatterTop = 10, kScatterBottom = 220;
constexpr size_t kScatterTicks = 4;
constexpr int kScatterColours = 4;

/// From the values of one axis to pixels.
class ScatterScale {
 public:
  ScatterScale(const std::vector<double>& values, bool is_log, double from, double to) : is_log_(is_log), from_(from), to_(to) {
    if (!values.empty()) {
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      low_ = inner(*low);
      high_ = inner(*high);
    }
    const double margin = high_ > low_ ? 0.06 * (high_ - low_) : std::max(0.5, 0.5 * std::abs(low_));
    low_ -= margin;
    high_ += margin;
  }
  double at(double value) const { return from_ + (inner(value) - low_) / (high_ - low_) * (to_ - from_); }
  /// About equally far from each other, and of so few digits as tell them apart.
  std::vector<double> ticks() const {
    std::vector<double> values;
    for (int digits = 1; digits <= 4 && values.size() <= kScatterTicks; ++digits) {
      values.clear();
      for (size_t i = 0; i <= kScatterTicks; ++i) {
        const double inside = low_ + (high_ - low_) * (0.5 + static_cast<double>(i)) / (kScatterTicks + 1);
        const double tick = std::strtod(fmt::format("{:.{}g}", is_log_ ? std::pow(10.0, inside) : inside, digits).c_str(), nullptr);
        const bool is_inside = inner(tick) >= low_ && inner(tick) <= high_;
        if (is_inside && std::find(values.begin(), values.end(), tick) == values.end()) {
          values.push_back(tick);
        }
      }
    }
    return values;
  }

 private:
  double inner(double value) const { return is_log_ ? std::log10(value) : value; }

  bool is_log_;
  double from_, to_;
  double low_ = 0, high_ = 1;
};

bool is_drawable(double x, double y, const ScatterOptions& options) {
  constexpr double kLargest = 1e300;
  return std::abs(x) <= kLargest && std::abs(y) <= kLargest && (!options.log_x || x > 0) && (!options.log_y || y > 0);
}

void draw_scatter_axes(std::string& svg, const ScatterScale& x, const ScatterScale& y, const std::string& x_label) {
  const auto out = std::back_inserter(svg);
  for (const double tick : y.ticks()) {
    fmt::format_to(out, "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>", kScatterLeft, kScatterRight,
                   y.at(tick));
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kScatterLeft - 8, y.at(tick) + 4, number_text(tick));
  }
  fmt::format_to(out, "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>", kScatterLeft, kScatterRight, kScatterBottom);
  for (const double tick : x.ticks()) {
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", x.at(tick), kScatterBottom + 17,
                   number_text(tick, 7));
  }
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", kScatterRight, kScatterHeight - 4, escape_html(x_label));
}

std::string scatter_legend(const std::vector<ScatterLine>& lines) {
  std::string html;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {  // What is drawn on top comes first.
    html += line->name.empty() ? ""
                               : fmt::format("<span class=\"legend\"><i class=\"key colour-{}\"></i>{}</span>",
                                             line->colour % kScatterColours, escape_html(line->name));
  }
  return html;
}

// Both axes over all points and lines that can be drawn.
std::pair<ScatterScale, ScatterScale> scatter_scales(const std::vector<ScatterPoint>& points, const ScatterOptions& options) {
  std::vector<double> xs, ys;
  const auto take = [&](double x, double y) {
    if (is_drawable(x, y, options)) {
      xs.push_back(x);
      ys.push_back(y);
    }
  };
  for (const ScatterPoint& point : points) {
    take(point.x, point.y);
  }
  for (const ScatterLine& line : options.lines) {
    for (const auto& [x, y] : line.points) {
      take(x, y);
    }
  }
  return {ScatterScale(xs, options.log_x, kScatterLeft, kScatterRight), ScatterScale(ys, options.log_y, kScatterBottom, kScatterTop)};
}

}  // namespace

std::string render_scatter_chart(const std::vector<ScatterPoint>& points, const ScatterOptions& options) {
  const auto [x, y] = scatter_scales(points, options);
  std::string svg;
  draw_scatter_axes(svg, x, y, options.x_label);
  for (const ScatterLine& line : options.lines) {
    svg += fmt::format("<polyline class=\"curve colour-{}{}\" points=\"", line.colour % kScatterColours, line.is_faint ? " faint" : "");
    for (const auto& [at_x, at_y] : line.points) {
      svg += is_drawable(at_x, at_y, options) ? fmt::format("{:.1f},{:.1f} ", x.at(at_x), y.at(at_y)) : "";
    }
    svg += "\"/>";
  }
  size_t num_drawn = 0;
  for (const ScatterPoint& point : points) {
    if (is_drawable(point.x, point.y, options)) {
      svg += fmt::format("<circle class=\"colour-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>",
                         point.colour % kScatterColours, x.at(point.x), y.at(point.y), escape_html(point.label));
      ++num_drawn;
    }
  }
  const std::string unit = options.unit.empty() ? "" : " <span class=\"dim\">" + escape_html(options.unit) + "</span>";
  return fmt::format(
      "<figure class=\"plot\"><figcaption><b>{0}</b>{1}{2}</figcaption><svg class=\"chart\" viewBox=\"0 0 {3} {4}\" role=\"img\" "
      "aria-label=\"{0}\" data-points=\"{5}\">{6}</svg></figure>",
      escape_html(options.title), unit, scatter_legend(options.lines), kScatterWidth, kScatterHeight, num_drawn, svg);
}

}  // namespace darkroom
