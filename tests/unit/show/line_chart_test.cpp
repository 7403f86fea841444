#include "darkroom/show/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Number of points of the first curve.
int64_t count_points(const std::string& svg) {
  const size_t begin = svg.find("points=\"") + 8;
  const std::string points = svg.substr(begin, svg.find('"', begin) - begin);
  return std::count(points.begin(), points.end(), ',');
}

TEST(LineChart, draws_every_point_of_a_short_curve) {
  const std::string svg = render_line_chart({{"loss", {{0, 1}, {1, 3}, {2, 2}}}}, {.title = "loss", .x_label = "step"});
  EXPECT_EQ(count_points(svg), 3);
  EXPECT_THAT(svg, testing::StartsWith("<figure"));
  EXPECT_THAT(svg, testing::EndsWith("</svg></figure>"));
}

TEST(LineChart, leaves_out_points_that_are_not_finite) {
  const std::string svg =
      render_line_chart({{"loss", {{0, 1}, {1, kNaN}, {2, kInfinity}, {3, -kInfinity}, {kNaN, 1}, {4, 1e308}, {5, 2}}}}, {.title = "loss"});
  EXPECT_EQ(count_points(svg), 2);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LineChart, a_logarithmic_axis_is_marked_at_round_values) {
  const std::string svg = render_line_chart({{"loss", {{0, 0.09}, {1, 1.1}}}}, {.title = "loss", .log_y = true});
  for (const char* label : {">0.1<", ">0.2<", ">0.5<", ">1<"}) {
    EXPECT_NE(svg.find(label), std::string::npos) << label;
  }
}

TEST(LineChart, a_logarithmic_axis_has_no_place_for_zero_and_below) {
  EXPECT_EQ(count_points(render_line_chart({{"loss", {{0, 1}, {1, 0}, {2, -1}, {3, 10}}}}, {.title = "loss", .log_y = true})), 2);
}

TEST(LineChart, later_curves_lie_above_earlier_ones) {
  const std::string svg =
      render_line_chart({{"every step", {{0, 1}, {1, 2}}, 0, /*is_faint=*/true}, {"mean", {{0, 1}, {1, 1.5}}, 1}}, {.title = "loss"});
  const size_t first = svg.find("curve colour-0 faint"), second = svg.find("curve colour-1\"");
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(second, std::string::npos);
  EXPECT_LT(first, second);
}

TEST(LineChart, a_thinned_curve_keeps_its_spikes) {
  ChartSeries series{"loss", {}};
  for (int i = 0; i < 100'000; ++i) {
    series.points.emplace_back(i, i == 77'777 ? 1000.0 : std::sin(i));
  }
  const std::string svg = render_line_chart({series}, {.title = "loss"});
  EXPECT_LE(count_points(svg), 4 * 640);
  EXPECT_GE(count_points(svg), 640);
  EXPECT_THAT(svg, HasSubstr(",10.0 ")) << "the spike touches the top of the chart";
}

TEST(LineChart, draws_an_empty_chart_without_points) {
  for (const auto& series : {std::vector<ChartSeries>{}, {{"loss", {}}}, {{"loss", {{kNaN, kNaN}}}}}) {
    EXPECT_THAT(render_line_chart(series, {.title = "loss"}), testing::EndsWith("</svg></figure>"));
  }
}

TEST(LineChart, ends_on_ranges_that_a_step_cannot_divide) {
  for (const double value : {0.0, 5.0, -3.0, 1e16, 1e300, 5e-324}) {
    const std::string svg = render_line_chart({{"loss", {{value, value}, {value, std::nextafter(value, kInfinity)}}}}, {.title = "loss"});
    EXPECT_THAT(svg, testing::EndsWith("</svg></figure>")) << value;
  }
}

TEST(LineChart, names_several_curves_and_escapes_their_names) {
  const std::string svg = render_line_chart({{"a<b", {{0, 1}}}, {"c&d", {{0, 2}}}}, {.title = "\"t\"", .x_label = "<x>"});
  EXPECT_THAT(svg, HasSubstr("a&lt;b"));
  EXPECT_THAT(svg, HasSubstr("c&amp;d"));
  EXPECT_THAT(svg, HasSubstr("&quot;t&quot;"));
  EXPECT_THAT(svg, HasSubstr("&lt;x&gt;"));
}

TEST(LineChart, an_axis_from_zero_shows_how_small_a_change_is) {
  const auto height_of_first = [](const std::string& svg) {
    const size_t comma = svg.find(',', svg.find("points=\""));
    return std::stod(svg.substr(comma + 1));
  };
  const std::vector<ChartSeries> series = {{"rate", {{0, 90}, {1, 100}}}};
  const double bottom = 260 - 40, top = 10;
  EXPECT_NEAR(height_of_first(render_line_chart(series, {})), bottom, 0.05) << "90 is the least value";
  EXPECT_NEAR(height_of_first(render_line_chart(series, {.from_zero = true})), bottom - 0.9 * (bottom - top), 0.05);
  EXPECT_THAT(render_line_chart({{"rate", {{0, 0}, {1, 0}}}}, {.from_zero = true}), HasSubstr(">0<"));
}

TEST(LineChart, a_narrow_logarithmic_axis_is_marked_at_round_values) {
  const std::string svg = render_line_chart({{"loss", {{0, 0.151}, {1, 0.189}}}}, {.log_y = true});
  for (const char* label : {">0.16<", ">0.17<", ">0.18<"}) {
    EXPECT_THAT(svg, HasSubstr(label));
  }
}

TEST(LineChart, the_values_lie_beside_the_drawing) {
  const std::string svg = render_line_chart({{"a \"b\"", {{0, 0.123456789}, {10, 2}}, 5}}, {.title = "t", .unit = "pictures/s"});
  EXPECT_THAT(svg, HasSubstr("&quot;x&quot;:[0,10],&quot;y&quot;:[0.123457,2.0]"));
  EXPECT_THAT(svg, HasSubstr("&quot;colour&quot;:1"));
  EXPECT_THAT(svg, HasSubstr("&quot;unit&quot;:&quot;pictures/s&quot;"));
  EXPECT_THAT(svg, HasSubstr("<span class=\"dim\">pictures/s</span>"));
}

TEST(LineChart, numbers_read_as_people_write_them) {
  for (const auto& [value, text] : std::vector<std::pair<double, std::string>>{{0, "0"},
                                                                               {0.5, "0.5"},
                                                                               {0.01234567, "0.01235"},
                                                                               {1e-4, "0.0001"},
                                                                               {1.25e-5, "1.25e-5"},
                                                                               {999, "999"},
                                                                               {1000, "1,000"},
                                                                               {-12345, "-12,345"},
                                                                               {1234.5678, "1,235"},
                                                                               {123456, "123,456"},
                                                                               {1e7, "1e7"},
                                                                               {kNaN, "-"},
                                                                               {kInfinity, "-"}}) {
    EXPECT_EQ(number_text(value), text);
  }
}

TEST(LineChart, numbers_that_round_up_to_a_power_of_ten_have_no_exponent) {
  EXPECT_EQ(number_text(999.7, 3), "1,000");
  EXPECT_EQ(number_text(-999.7, 3), "-1,000");
  EXPECT_EQ(number_text(999.4, 3), "999");
  EXPECT_EQ(number_text(9999.6), "10,000");
  EXPECT_EQ(number_text(9.99996), "10");
  EXPECT_EQ(number_text(0.99999), "1");
  EXPECT_EQ(number_text(9999999.7), "10,000,000");
  EXPECT_EQ(number_text(9.99996e-5), "1e-4");
}

}  // namespace
}  // namespace darkroom
