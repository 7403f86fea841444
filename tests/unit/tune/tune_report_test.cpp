#include "darkroom/tune/tune_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StageEnd end_of(int64_t trial, int64_t rung, double loss, double seconds = 36) {
  return {.result = {.stage = {trial, rung}, .outcome = StageOutcome::kScored, .loss = loss}, .step = 10 * (rung + 1), .seconds = seconds};
}

/// Four trials of halving, one of which diverged; trial 2 won.
struct SmallSearch {
  TuneRecord record;
  ReportInputs inputs;

  SmallSearch() {
    record.head = {{"search", {{"strategy", "halving"}}}};
    record.plan = TunePlan{.unit = "samples", .length = 240, .rungs = make_rungs(TuneStrategy::kHalving, 4), .trials = {}};
    for (const char* lr : {"", "0.1", "0.2", "0.4"}) {
      record.plan->trials.push_back({.settings = {}, .batch = 8, .full_steps = 30});
      if (*lr != 0) {
        record.plan->trials.back().settings = {{"optimizer.lr", lr}};
      }
    }
    StageEnd diverged{
        .result = {.stage = {3, 0}, .outcome = StageOutcome::kDiverged}, .step = 4, .seconds = 18, .reason = "the loss is not finite"};
    record.ends = {end_of(0, 0, 1.0), end_of(1, 0, 0.9), end_of(2, 0, 0.5), diverged, end_of(2, 1, 0.4, 72)};
    record.speeds = {{.batch = 8, .micro = 8, .steps_per_second = 5, .start_seconds = 1}};
    record.spent_seconds = 200;
    inputs.curves.resize(4);
    inputs.curves[2] = {.validations = {{10, 80, 1, 0.5}, {20, 160, 2, 0.4}}, .last_step = 20, .seconds = 2, .images_per_second = 30};
    inputs.axes = {parse_search_axis("optimizer.lr=0.1,0.2,0.4").value()};
    inputs.base = {{"optimizer.lr", "0.05"}};
    inputs.price = {.label = "given", .dollars_per_hour = 10, .watts = 500};
    inputs.budget_seconds = 600;
    inputs.num_sharing = 2;
  }
  TuneReport report() const { return make_tune_report(record, inputs); }
};

TEST(tune_report, tells_the_best_trial_and_what_became_of_the_others) {
  const TuneReport report = SmallSearch().report();
  EXPECT_EQ(report.best, 2);
  EXPECT_EQ(report.trials[2].state, "best");
  EXPECT_EQ(report.trials[0].state, "left at rung 1");
  EXPECT_EQ(report.trials[1].state, "left at rung 1");
  EXPECT_EQ(report.trials[3].state, "diverged");
  EXPECT_EQ(report.trials[3].reason, "the loss is not finite");
  EXPECT_EQ(report.trials[2].loss, 0.4);
  EXPECT_EQ(report.trials[2].samples, 160);
  EXPECT_TRUE(report.is_complete);
  EXPECT_EQ(report.base_loss, 1.0);
  EXPECT_EQ(report.best_loss_there, 0.5);  // At the rung where the recipe as it is ended.
}

TEST(tune_report, costs_are_shared_by_the_trials_that_run_side_by_side) {
  const TuneReport report = SmallSearch().report();
  EXPECT_DOUBLE_EQ(report.trials[2].machine_hours, (36.0 + 72.0) / 3600 / 2);
  EXPECT_DOUBLE_EQ(report.trials[2].dollars, 10 * report.trials[2].machine_hours);
  EXPECT_DOUBLE_EQ(report.trials[2].kilowatt_hours, 0.5 * report.trials[2].machine_hours);
}

TEST(tune_report, costs_are_shared_as_the_ledger_says_of_each_stage) {
  SmallSearch search;
  search.record.ends[2].num_sharing = 4;
  search.record.ends[4].num_sharing = 1;  // Later, by a start with fewer workers.
  const TuneReport report = search.report();
  EXPECT_DOUBLE_EQ(report.trials[2].machine_hours, 36.0 / 3600 / 4 + 72.0 / 3600);
  const auto last = std::find_if(report.costs.begin(), report.costs.end(), [](const CostPoint& point) { return point.rung == 1; });
  ASSERT_NE(last, report.costs.end());
  EXPECT_DOUBLE_EQ(last->machine_hours, report.trials[2].machine_hours);
}

TEST(tune_report, what_was_cut_has_cost_as_much_as_its_metrics_tell) {
  SmallSearch search;
  search.record.ends.pop_back();
  search.record.unfinished = {{.stage = {2, 1}, .num_sharing = 4}};
  search.inputs.curves[2] = {.validations = {{10, 80, 30, 0.5}}, .last_step = 17, .seconds = 50, .images_per_second = 30};
  const TrialReport trial = search.report().trials[2];
  EXPECT_DOUBLE_EQ(trial.seconds, 36.0 + 20.0);  // The first rung's validation was after 30 s of the run.
  EXPECT_DOUBLE_EQ(trial.machine_hours, 36.0 / 3600 / 2 + 20.0 / 3600 / 4);
  EXPECT_DOUBLE_EQ(trial.dollars, 10 * trial.machine_hours);
  EXPECT_EQ(trial.step, 17);
  EXPECT_EQ(trial.samples, 17 * 8);
}

TEST(tune_report, the_front_holds_what_nothing_beats_for_as_much) {
  const TuneReport report = SmallSearch().report();
  std::vector<std::pair<int64_t, int64_t>> front;
  for (const CostPoint& point : report.costs) {
    const bool is_beaten = std::any_of(report.costs.begin(), report.costs.end(), [&](const CostPoint& other) {
      return other.machine_hours <= point.machine_hours && other.loss < point.loss;
    });
    EXPECT_EQ(point.is_on_front, !is_beaten) << point.trial << " " << point.rung;
    if (point.is_on_front) {
      front.emplace_back(point.trial, point.rung);
    }
  }
  EXPECT_THAT(front, ElementsAre(std::pair(2, 0), std::pair(2, 1)));
}

TEST(tune_report, speeds_are_told_in_steps_and_in_pictures) {
  const TuneReport report = SmallSearch().report();
  ASSERT_EQ(report.speeds.size(), 2U);
  EXPECT_DOUBLE_EQ(report.speeds[0].steps_per_second, 5);
  EXPECT_DOUBLE_EQ(report.speeds[0].images_per_second, 40);
  EXPECT_DOUBLE_EQ(report.speeds[1].images_per_second, 30);
  EXPECT_THAT(report.speeds[1].measured, HasSubstr("1 trial,"));
}

TEST(tune_report, fields_are_studied_at_the_rung_of_all_with_the_recipes_own_value) {
  const TuneReport report = SmallSearch().report();
  ASSERT_EQ(report.axes.size(), 1U);
  ASSERT_EQ(report.axes[0].bins.size(), 3U);
  EXPECT_EQ(report.axes[0].bins[0].label, "0.05");
  EXPECT_EQ(report.axes[0].bins[0].best, 1.0);
  EXPECT_EQ(report.axes[0].bins[2].label, "0.2");
  EXPECT_FALSE(report.axes[0].rank_correlation.has_value());  // Of three trials.
}

TEST(tune_report, an_incomplete_search_says_so) {
  SmallSearch search;
  search.record.ends.pop_back();
  search.record.unfinished = {{.stage = {2, 1}}};
  const TuneReport report = search.report();
  EXPECT_FALSE(report.is_complete);
  EXPECT_EQ(report.best, 2);
  EXPECT_THAT(report.notes[0], HasSubstr("not complete"));
  search.record.ends.erase(search.record.ends.begin());
  EXPECT_EQ(search.report().trials[0].state, "not begun");
  search.record.ends.clear();
  EXPECT_FALSE(search.report().best.has_value());
  EXPECT_TRUE(search.report().to_json()["best"].is_null());
}

TEST(tune_report, json_and_text_hold_every_trial) {
  const TuneReport report = SmallSearch().report();
  const auto json = nlohmann::json::parse(report.to_json().dump());
  ASSERT_EQ(json["trials"].size(), 4U);
  EXPECT_EQ(json["best"], "trial-002");
  EXPECT_EQ(json["trials"][2]["settings"]["optimizer.lr"], "0.2");
  EXPECT_EQ(json["trials"][3]["reason"], "the loss is not finite");
  EXPECT_TRUE(json["trials"][3]["loss"].is_null());
  EXPECT_EQ(json["trials"][2]["curve"][1]["samples"], 160);
  EXPECT_THAT(report.to_text(), HasSubstr("trial-002  0.40000"));
  EXPECT_LT(report.to_text().find("trial-002"), report.to_text().find("trial-000"));
}

TEST(tune_report, without_a_price_no_dollars_are_told) {
  SmallSearch search;
  search.inputs.price = {};
  const auto json = search.report().to_json();
  EXPECT_FALSE(json["trials"][2].contains("dollars"));
  EXPECT_FALSE(json["trials"][2].contains("kilowatt_hours"));
  EXPECT_TRUE(json["trials"][2].contains("machine_hours"));
}

TEST(rank_correlation, equals_its_definition) {
  EXPECT_DOUBLE_EQ(*rank_correlation({{1, 10}, {2, 20}, {3, 30}, {100, 31}}), 1);
  EXPECT_DOUBLE_EQ(*rank_correlation({{1, 4}, {2, 3}, {3, 2}, {4, 1}}), -1);
  // Ranks 1 2 3 4 and 2 1 4 3: 1 - 6 * 4 / (4 * 15).
  EXPECT_DOUBLE_EQ(*rank_correlation({{1, 2}, {2, 1}, {3, 4}, {4, 3}}), 0.6);
  // Equal values share the mean of their ranks: 1.5 1.5 3.5 3.5 and 1 2 3 4.
  EXPECT_NEAR(*rank_correlation({{1, 1}, {1, 2}, {2, 3}, {2, 4}}), 4 / std::sqrt(4.0 * 5.0), 1e-12);
  EXPECT_FALSE(rank_correlation({{1, 1}, {2, 2}, {3, 3}}).has_value());
  EXPECT_FALSE(rank_correlation({{1, 1}, {1, 2}, {1, 3}, {1, 4}}).has_value());
}

class TrialCurveTest : public ::testing::Test {
 protected:
  TrialCurve read(const std::string& text) {
    EXPECT_TRUE(write_file_atomic(files_, "metrics.jsonl", text).is_ok());
    return read_trial_curve(files_, "metrics.jsonl").value();
  }
  MemoryFileSystem files_;
};

TEST_F(TrialCurveTest, reads_validations_and_the_median_speed) {
  const TrialCurve curve = read(
      "{\"step\":1,\"samples\":8,\"images_per_second\":1,\"seconds\":1.5}\n"
      "{\"step\":2,\"samples\":16,\"images_per_second\":40,\"seconds\":2,\"validation_loss\":0.5}\n"
      "no json\n{\"samples\":3}\n"
      "{\"step\":3,\"samples\":24,\"images_per_second\":50,\"seconds\":3,\"validation_loss\":null}\n"
      "{\"step\":4,\"sam");
  ASSERT_EQ(curve.validations.size(), 2U);
  EXPECT_EQ(curve.at(2)->loss, 0.5);
  EXPECT_EQ(curve.at(2)->samples, 16);
  EXPECT_TRUE(std::isnan(curve.at(3)->loss));
  EXPECT_FALSE(curve.at(4).has_value());
  EXPECT_EQ(curve.last_step, 3);
  EXPECT_EQ(curve.seconds, 3);
  EXPECT_EQ(curve.images_per_second, 45);  // Without the first.
}

TEST_F(TrialCurveTest, a_trial_that_wrote_nothing_has_no_point) {
  EXPECT_TRUE(read_trial_curve(files_, "no/such/file").value().validations.empty());
  EXPECT_TRUE(read("").validations.empty());
}

}  // namespace
}  // namespace darkroom
