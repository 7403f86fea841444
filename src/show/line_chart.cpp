#include "darkroom/show/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "darkroom/show/html_page.h"

namespace darkroom {
namespace {

constexpr int kLeft = 58;
constexpr int kRight = 14;
constexpr int kTop = 10;
constexpr int kBottom = 40;
constexpr size_t kMaxPoints = 2000;
constexpr int kNumColours = 4;
constexpr double kMaxMagnitude = 1e300;  // So that the width of a range is finite.

struct AxisRange {
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

// The range that the points lie in, and 0 where it has to be shown.
AxisRange range_of(const std::vector<Points>& curves, bool of_x, bool from_zero) {
  std::optional<AxisRange> range;
  for (const Points& curve : curves) {
    for (const auto& point : curve) {
      const double value = of_x ? point.first : point.second;
      range = range ? AxisRange{std::min(range->low, value), std::max(range->high, value)} : AxisRange{value, value};
    }
  }
  if (!range) {
    return {};
  }
  if (from_zero) {
    range = AxisRange{std::min(0.0, range->low), range->high > 0 ? range->high : 1};
  }
  if (range->low == range->high) {
    const double margin = range->low == 0 ? 1 : std::abs(range->low) * 0.5;
    return {range->low - margin, range->high + margin};
  }
  return *range;
}

// About `count` round values (1, 2 or 5 times a power of ten) inside the range.
std::vector<double> round_ticks(const AxisRange& range, int count) {
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

// Logarithms of round values inside the range (itself of logarithms): of 1, 2 and 5 times powers of ten; of round
// exponents where it spans more than four decades; of what a linear axis would be marked at where it spans less than one.
std::vector<double> log_ticks(const AxisRange& range) {
  if (range.high - range.low > 4) {
    return round_ticks(range, 5);
  }
  std::vector<double> ticks;
  for (int decade = static_cast<int>(std::floor(range.low)); decade <= static_cast<int>(std::floor(range.high)); ++decade) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = decade + std::log10(factor);
      if (tick >= range.low && tick <= range.high) {
        ticks.push_back(tick);
      }
    }
  }
  if (ticks.size() >= 3) {
    return ticks;
  }
  ticks.clear();
  for (const double tick : round_ticks({std::pow(10.0, range.low), std::pow(10.0, range.high)}, 4)) {
    if (tick > 0) {
      ticks.push_back(std::log10(tick));
    }
  }
  return ticks;
}

class Canvas {
 public:
  Canvas(const ChartOptions& options, AxisRange x, AxisRange y) : options_(options), x_(x), y_(y) {}

  double at_x(double value) const { return kLeft + (value - x_.low) / (x_.high - x_.low) * (right() - kLeft); }
  double at_y(double value) const { return bottom() - (value - y_.low) / (y_.high - y_.low) * (bottom() - kTop); }

  void draw_axes(std::string& svg) const {
    const auto out = std::back_inserter(svg);
    for (const double tick : options_.log_y ? log_ticks(y_) : round_ticks(y_, 4)) {
      const double shown = options_.log_y ? std::pow(10.0, tick) : tick;
      fmt::format_to(out, "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft, right(), at_y(tick), at_y(tick));
      fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 8, at_y(tick) + 4, number_text(shown));
    }
    fmt::format_to(out, "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", kLeft, right(), bottom(), bottom());
    for (const double tick : round_ticks(x_, 5)) {
      fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", at_x(tick), bottom() + 17, number_text(tick, 7));
    }
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", right(), options_.height - 4,
                   escape_html(options_.x_label));
  }

  void draw_curve(std::string& svg, const Points& points, const ChartSeries& series) const {
    svg += fmt::format("<polyline class=\"curve colour-{}{}{}\" points=\"", series.colour % kNumColours, series.is_faint ? " faint" : "",
                       series.is_dashed ? " dashed" : "");
    for (const auto& [x, y] : points) {
      fmt::format_to(std::back_inserter(svg), "{:.1f},{:.1f} ", at_x(x), at_y(y));
    }
    svg += "\"/>";
    for (const auto& [x, y] : series.is_dashed ? points : Points()) {
      fmt::format_to(std::back_inserter(svg), "<circle class=\"colour-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>",
                     series.colour % kNumColours, at_x(x), at_y(y));
    }
  }

  // What the script needs to find the values below the pointer.
  nlohmann::json geometry() const {
    return {{"box", {kLeft, kTop, right(), bottom()}},
            {"x", {x_.low, x_.high}},
            {"y", {y_.low, y_.high}},
            {"log", options_.log_y},
            {"unit", options_.unit},
            {"label", options_.x_label}};
  }

 private:
  int right() const { return options_.width - kRight; }
  int bottom() const { return options_.height - kBottom; }

  const ChartOptions& options_;
  AxisRange x_;
  AxisRange y_;
};

// The curves' values as the script reads them. Six digits are more than a pixel shows.
nlohmann::json values_of(const std::vector<ChartSeries>& series, const std::vector<Points>& curves, bool log_y) {
  auto values = nlohmann::json::array();
  for (size_t i = 0; i < series.size(); ++i) {
    auto x = nlohmann::json::array(), y = nlohmann::json::array();
    for (const auto& point : curves[i]) {
      const bool is_whole = std::abs(point.first) < 1e15 && point.first == std::floor(point.first);
      x.push_back(is_whole ? nlohmann::json(static_cast<int64_t>(point.first)) : nlohmann::json(point.first));
      y.push_back(std::strtod(fmt::format("{:.6g}", log_y ? std::pow(10.0, point.second) : point.second).c_str(), nullptr));
    }
    values.push_back({{"name", series[i].name}, {"colour", series[i].colour % kNumColours}, {"x", x}, {"y", y}});
  }
  return values;
}

std::string legend(const std::vector<ChartSeries>& series) {
  std::string html;
  for (const ChartSeries& one : series) {
    html += fmt::format("<span class=\"legend\"><i class=\"key colour-{}{}{}\"></i>{}</span>", one.colour % kNumColours,
                        one.is_faint ? " faint" : "", one.is_dashed ? " dashed" : "", escape_html(one.name));
  }
  return html;
}

// "1,234,567" of "1234567"; what follows a point is left alone.
std::string grouped(std::string digits) {
  const size_t first = digits.starts_with('-') ? 1 : 0;
  for (size_t at = std::min(digits.find('.'), digits.size()); at > first + 3; at -= 3) {
    digits.insert(at - 3, 1, ',');
  }
  return digits;
}

// For each chart: the pointer's x picks the nearest point of every curve.
constexpr std::string_view kScript = R"js(
for (const svg of document.querySelectorAll("svg.chart")) {
  const chart = JSON.parse(svg.dataset.chart), [left, top, right, bottom] = chart.box;
  const shape = (name, type) => { const one = document.createElementNS(svg.namespaceURI, type); one.setAttribute("class", name); one.style.display = "none"; svg.append(one); return one; };
  const rule = shape("rule", "line"), dots = chart.curves.map(curve => shape("dot colour-" + curve.colour, "circle"));
  const note = document.createElement("div");
  note.className = "note"; note.hidden = true; svg.parentNode.append(note);
  const show = number => Math.abs(number) >= 1e6 || (number !== 0 && Math.abs(number) < 1e-4) ? number.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e") : (+number.toPrecision(4)).toLocaleString("en");
  const nearest = (xs, x) => { let low = 0, high = xs.length - 1; while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] < x) low = middle; else high = middle; } return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high; };
  const hide = () => { note.hidden = true; for (const one of [rule, ...dots]) one.style.display = "none"; };
  const place = event => {
    const frame = svg.getBoundingClientRect(), scale = frame.width / svg.viewBox.baseVal.width, longest = chart.curves.reduce((a, b) => b.x.length > a.x.length ? b : a, {x: []});
    const at = Math.min(right, Math.max(left, (event.clientX - frame.left) / scale));
    if (!longest.x.length) return;
    const pointed = chart.x[0] + (at - left) / (right - left) * (chart.x[1] - chart.x[0]), x = longest.x[nearest(longest.x, pointed)];
    const px = left + (x - chart.x[0]) / (chart.x[1] - chart.x[0]) * (right - left);
    for (const [name, value] of [["x1", px], ["x2", px], ["y1", top], ["y2", bottom]]) rule.setAttribute(name, value);
    rule.style.display = "";
    note.replaceChildren();
    const line = (text, colour) => { const row = document.createElement("div"); if (colour !== undefined) { const key = document.createElement("i"); key.className = "key colour-" + colour; row.append(key); } row.append(text); note.append(row); };
    line(chart.label + " " + x.toLocaleString("en"));
    chart.curves.forEach((curve, index) => {
      const i = curve.x.length ? nearest(curve.x, x) : -1, dot = dots[index];
      dot.style.display = i < 0 ? "none" : "";
      if (i < 0) return;
      const y = chart.log ? Math.log10(curve.y[i]) : curve.y[i];
      dot.setAttribute("r", 3.5); dot.setAttribute("cx", left + (curve.x[i] - chart.x[0]) / (chart.x[1] - chart.x[0]) * (right - left));
      dot.setAttribute("cy", bottom - (y - chart.y[0]) / (chart.y[1] - chart.y[0]) * (bottom - top));
      const elsewhere = curve.x[i] === x ? "" : " at " + curve.x[i].toLocaleString("en");
      line(curve.name + ": " + show(curve.y[i]) + (chart.unit ? " " + chart.unit : "") + elsewhere, curve.colour);
    });
    note.hidden = false;
    const room = svg.parentNode.clientWidth - note.offsetWidth, wanted = px * scale + 14;
    note.style.left = Math.max(0, wanted > room ? px * scale - note.offsetWidth - 14 : wanted) + "px";
    note.style.top = svg.offsetTop + top * scale + "px";
  };
  svg.addEventListener("pointermove", place); svg.addEventListener("pointerdown", place); svg.addEventListener("pointerleave", hide);
}
)js";

}  // namespace

std::string render_line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options) {
  std::vector<Points> curves;
  for (const ChartSeries& one : series) {
    curves.push_back(thinned(drawable_points(one.points, options.log_y), static_cast<size_t>(options.width)));
  }
  const Canvas canvas(options, range_of(curves, true, false), range_of(curves, false, options.from_zero));
  nlohmann::json data = canvas.geometry();
  data["curves"] = values_of(series, curves, options.log_y);
  std::string figure = "<figure class=\"plot\"><figcaption><b>" + escape_html(options.title) + "</b>";
  figure += options.unit.empty() ? "" : " <span class=\"dim\">" + escape_html(options.unit) + "</span>";
  figure += series.size() > 1 ? legend(series) : "";
  figure += fmt::format("</figcaption><svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" data-chart=\"{}\">",
                        options.width, options.height, escape_html(options.title),
                        escape_html(data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  canvas.draw_axes(figure);
  for (size_t index = 0; index < series.size(); ++index) {
    canvas.draw_curve(figure, curves[index], series[index]);
  }
  return figure + "</svg></figure>";
}

std::string chart_script() { return std::string(kScript); }

std::string number_text(double value, int digits) {
  const double size = std::abs(value);
  if (!(size <= kMaxMagnitude)) {
    return "-";
  }
  if (value != 0 && (size < 1e-4 || size >= 1e7)) {
    std::string text = fmt::format("{:.{}e}", value, digits - 1);
    const size_t exponent = text.find('e');
    std::string mantissa = text.substr(0, exponent);
    if (mantissa.find('.') != std::string::npos) {
      mantissa.erase(mantissa.find_last_not_of('0') + 1);
      mantissa.erase(mantissa.find_last_not_of('.') + 1);
    }
    return exponent == std::string::npos ? text : fmt::format("{}e{}", mantissa, std::stoi(text.substr(exponent + 1)));
  }
  const std::string text = fmt::format("{:.{}g}", value, digits);
  // Digits before the point are never rounded away; where these are more, and of 999.96, the short form has an exponent.
  return grouped(text.find('e') == std::string::npos ? text : fmt::format("{:.0f}", value));
}

}  // namespace darkroom
