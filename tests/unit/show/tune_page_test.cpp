#include "darkroom/show/tune_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "show/scatter_chart.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TuneReport small_report() {
  TuneReport report;
  report.head = {{"search", {{"strategy", "halving"}, {"space", {"optimizer.lr=0.1,<0.2>"}}}}};
  report.unit = "samples";
  report.length = 90;
  report.rungs = make_rungs(TuneStrategy::kHalving, 3);
  report.trials.push_back(
      {.name = "trial-000", .state = "left at rung 1", .batch = 8, .full_steps = 12, .rung = 0, .loss = 0.5, .step = 4, .samples = 32});
  report.trials.push_back({.name = "trial-001",
                           .settings = {{"optimizer.lr", "0.1"}},
                           .state = "best",
                           .batch = 8,
                           .full_steps = 12,
                           .rung = 1,
                           .loss = 0.25,
                           .step = 12,
                           .samples = 96,
                           .curve = {{4, 32, 1, 0.4}, {12, 96, 2, 0.25}}});
  report.trials.push_back({.name = "trial-002", .settings = {{"optimizer.lr", "<0.2>"}}, .state = "diverged", .reason = "not <finite>"});
  report.best = 1;
  report.base_loss = 0.5;
  report.best_loss_there = 0.4;
  report.axes = {{.key = "optimizer.lr", .points = {{0.05, 0.5}, {0.1, 0.4}}, .bins = {{"0.05", 1, 0.5, 0.5}, {"0.1", 1, 0.4, 0.4}}}};
  report.speeds = {{.batch = 8, .measured = "alone", .steps_per_second = 2, .images_per_second = 16}};
  report.costs = {{.trial = 1, .rung = 0, .machine_hours = 0.5, .loss = 0.4, .is_on_front = true}};
  report.notes = {"a note"};
  return report;
}

TEST(tune_page, holds_every_trial_the_best_line_and_the_speeds) {
  const std::string page = render_tune_page(small_report(), "tuned/best.toml");
  for (const char* text : {"trial-000", "trial-001", "trial-002", "darkroom train tuned/best.toml --output RUN", "20.0 %",
                           "optimizer steps/s", "machine-hours", "Pareto front", "a note", "left at rung 1"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
}

TEST(tune_page, escapes_what_others_wrote_and_loads_nothing) {
  const std::string page = render_tune_page(small_report(), "a<b>/best.toml");
  EXPECT_THAT(page, HasSubstr("not &lt;finite&gt;"));
  EXPECT_THAT(page, HasSubstr("a&lt;b&gt;/best.toml"));
  EXPECT_THAT(page, Not(HasSubstr("<0.2>")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
}

TEST(tune_page, dollars_take_the_place_of_machine_hours_where_there_is_a_price) {
  TuneReport report = small_report();
  report.price = {.label = "p5, on_demand", .dollars_per_hour = 98.32, .watts = 10200};
  const std::string page = render_tune_page(report, "best.toml");
  EXPECT_THAT(page, HasSubstr("dollars"));
  EXPECT_THAT(page, HasSubstr("p5, on_demand"));
  EXPECT_THAT(page, HasSubstr("kWh"));
}

TEST(tune_page, a_search_without_a_score_says_so) {
  TuneReport report;
  report.rungs = make_rungs(TuneStrategy::kGrid, 1);
  report.trials.push_back({.name = "trial-000", .state = "failed", .reason = "exit code 1"});
  const std::string page = render_tune_page(report, "best.toml");
  EXPECT_THAT(page, HasSubstr("No trial has a score"));
  EXPECT_THAT(page, HasSubstr("exit code 1"));
  EXPECT_THAT(page, Not(HasSubstr("darkroom train")));
}

TEST(scatter_chart, leaves_out_what_cannot_be_drawn) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<ScatterPoint> points = {{1, 1}, {10, 2}, {0, 3}, {kNan, 1}, {1, kNan}, {1e308, 1}};
  EXPECT_THAT(render_scatter_chart(points, {.log_x = true}), HasSubstr("data-points=\"2\""));
  EXPECT_THAT(render_scatter_chart(points, {}), HasSubstr("data-points=\"3\""));
  EXPECT_THAT(render_scatter_chart({}, {}), HasSubstr("data-points=\"0\""));
  EXPECT_THAT(render_scatter_chart({{1, 1}, {1, 1}}, {}), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace darkroom
