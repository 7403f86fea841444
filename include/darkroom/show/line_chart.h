#pragma once

#include <string>
#include <utility>
#include <vector>

namespace darkroom {

/// One curve: (x, y) in the order of x.
struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool is_faint = false;  ///< For what another curve is the summary of.
};

struct ChartOptions {
  std::string title = {};
  std::string x_label = {};
  bool log_y = false;  ///< Logarithmic y axis; points with y <= 0 are left out.
  int width = 640;     ///< Pixels of the view box; the picture scales with the page.
  int height = 260;
};

/// Draws curves as one <svg> element, later ones above earlier ones: axes with round tick values, a legend when there are several curves.
/// Colours come from CSS classes (curve-0 ...), so that a page can have a dark form. Points that are not finite are left out; a curve of
/// more than 2,000 points is thinned to the lowest and highest of each pixel column. Thread safety: pure.
std::string render_line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options);

}  // namespace darkroom
