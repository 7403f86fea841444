#include "run_charts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "darkroom/show/line_chart.h"

namespace darkroom {
namespace {

/// One of the runs in the charts.
struct DrawnRun {
  const RunFolder& run;
  std::string name;  ///< Before the names of its curves; empty for a run alone.
  int colour = 0;
};

std::string curve_name(const DrawnRun& drawn, const std::string& curve) {
  return drawn.name + (drawn.name.empty() || curve.empty() ? "" : " ") + curve;
}

ChartSeries series_of(const DrawnRun& drawn, const char* x_field, const char* y_field, const std::string& name) {
  ChartSeries series{.name = curve_name(drawn, name), .points = {}, .colour = drawn.colour};
  const std::vector<double>& xs = drawn.run.metrics.column(x_field);
  const std::vector<double>& ys = drawn.run.metrics.column(y_field);
  for (size_t i = 0; i < xs.size(); ++i) {
    if (!std::isnan(xs[i]) && !std::isnan(ys[i])) {
      series.points.emplace_back(xs[i], ys[i]);
    }
  }
  return series;
}

// Mean over a window of about 2 % of the run: a diffusion loss is mostly the luck of the timesteps.
ChartSeries smoothed(const ChartSeries& series, const std::string& name) {
  ChartSeries result{.name = name, .points = {}, .colour = series.colour};
  const size_t window = std::max<size_t>(1, series.points.size() / 50);
  double sum = 0;
  for (size_t i = 0; i < series.points.size(); ++i) {
    sum += series.points[i].second;
    if (i >= window) {
      sum -= series.points[i - window].second;
    }
    result.points.emplace_back(series.points[i].first, sum / static_cast<double>(std::min(i + 1, window)));
  }
  return result;
}

std::string loss_chart(const std::vector<DrawnRun>& runs, const char* x_field, const std::string& x_label) {
  std::vector<ChartSeries> noisy, clear;
  for (const DrawnRun& drawn : runs) {
    ChartSeries loss = series_of(drawn, x_field, "loss", "each step");
    loss.is_faint = true;
    clear.push_back(smoothed(loss, curve_name(drawn, "mean of 2 %")));
    noisy.push_back(std::move(loss));
    ChartSeries validation = series_of(drawn, x_field, "validation_loss", "validation");
    validation.is_dashed = true;
    validation.colour += 2;
    if (!validation.points.empty()) {
      clear.push_back(std::move(validation));
    }
  }
  noisy.insert(noisy.end(), clear.begin(), clear.end());
  // An autoencoder's loss holds a logarithm and may be negative.
  const bool is_positive = std::all_of(noisy.begin(), noisy.end(), [](const ChartSeries& one) {
    return std::all_of(one.points.begin(), one.points.end(), [](const auto& point) { return point.second > 0; });
  });
  return render_line_chart(noisy, {.title = "Loss", .x_label = x_label, .log_y = is_positive});
}

std::string plain_chart(const std::vector<DrawnRun>& runs, const char* x_field, const char* y_field, const ChartOptions& options) {
  std::vector<ChartSeries> curves;
  for (const DrawnRun& drawn : runs) {
    curves.push_back(series_of(drawn, x_field, y_field, runs.size() == 1 ? options.title : ""));
  }
  return render_line_chart(curves, options);
}

std::string throughput_chart(const std::vector<DrawnRun>& runs, const char* x_field, const std::string& x_label) {
  std::vector<ChartSeries> curves;
  for (const DrawnRun& drawn : runs) {
    const std::string name = curve_name(drawn, runs.size() == 1 ? "mean of 2 %" : "");
    curves.push_back(smoothed(series_of(drawn, x_field, "images_per_second", ""), name));
  }
  return render_line_chart(curves, {.title = "Throughput", .unit = "pictures/s", .x_label = x_label, .from_zero = true});
}

}  // namespace

std::string run_charts_html(const RunFolder& run, const RunFolder* other) {
  std::vector<DrawnRun> runs;
  if (other == nullptr) {
    runs.push_back({run, "", 0});
  } else {
    const auto [name, other_name] = run_names(run, *other);
    runs.push_back({run, name, 0});
    runs.push_back({*other, other_name, 1});
  }
  const bool by_samples = other != nullptr && run.recipe_field("batch", "global") != other->recipe_field("batch", "global");
  const char* x_field = by_samples ? "samples" : "step";
  const std::string x_label = by_samples ? "pictures seen" : "step";
  std::string html = "<h2>Curves</h2><div class=\"plots\">" + loss_chart(runs, x_field, x_label);
  html += plain_chart(runs, x_field, "grad_norm", {.title = "Gradient norm before clipping", .x_label = x_label, .log_y = true});
  html += plain_chart(runs, x_field, "lr", {.title = "Learning rate", .x_label = x_label, .from_zero = true});
  return html + throughput_chart(runs, x_field, x_label) + "</div>";
}

}  // namespace darkroom
