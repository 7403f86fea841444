#pragma once

#include <string>
#include <utility>
#include <vector>

namespace darkroom {

struct ScatterPoint {
  double x = 0;
  double y = 0;
  std::string label = {};  ///< Shown under the pointer.
  int colour = 0;          ///< As of a ChartSeries.
};

/// A line through points.
struct ScatterLine {
  std::vector<std::pair<double, double>> points;
  int colour = 0;
  bool is_faint = false;  ///< One of many, behind what is told.
  std::string name = {};  ///< In the legend; empty: it is not there.
};

struct ScatterOptions {
  std::string title = {};
  std::string unit = {};  ///< Of y.
  std::string x_label = {};
  bool log_x = false;                   ///< Points with x <= 0 are left out.
  bool log_y = false;                   ///< Points with y <= 0 are left out.
  std::vector<ScatterLine> lines = {};  ///< Below the points, later ones above earlier ones.
};

/// Points and lines between axes as one <figure>, in the manner of render_line_chart() but without a script: a browser shows a point's
/// label under the pointer. Points that are not finite are left out. Pure.
std::string render_scatter_chart(const std::vector<ScatterPoint>& points, const ScatterOptions& options);

}  // namespace darkroom
