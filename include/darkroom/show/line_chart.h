#pragma once

#include <string>
#include <utility>
#include <vector>

namespace darkroom {

/// One curve: (x, y) in the order of x.
struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;
  int colour = 0;          ///< Number of the colour, modulo four: curves of one run share one.
  bool is_faint = false;   ///< For what another curve is the summary of.
  bool is_dashed = false;  ///< For few points, such as validations: they are marked, too.
};

struct ChartOptions {
  std::string title = {};
  std::string unit = {};  ///< Of y: "pictures/s"; empty for a pure number.
  std::string x_label = {};
  bool log_y = false;      ///< Logarithmic y axis; points with y <= 0 are left out.
  bool from_zero = false;  ///< The y axis begins at 0. Not together with log_y.
  int width = 640;         ///< Pixels of the view box; the picture scales with the page.
  int height = 260;
};

/// Draws curves as one <figure>: title, unit and, for several curves, a legend as text; the curves as <svg>, later ones above
/// earlier ones, between axes with round tick values. The values lie beside the drawing for chart_script().
/// Colours come from CSS classes (colour-0 ...), so that a page can have a dark form. Points that are not finite are left out; a
/// curve of more than 2,000 points is thinned to the first, lowest, highest and last of each pixel column. Thread safety: pure.
std::string render_line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options);

/// What shows a chart's values under the pointer: a script for the page that holds the charts, complete in itself.
std::string chart_script();

/// A value as an axis, a table or a sentence states it, at most `digits` significant ones: "0.0123", "1,250", "1e-6".
std::string number_text(double value, int digits = 4);

}  // namespace darkroom
