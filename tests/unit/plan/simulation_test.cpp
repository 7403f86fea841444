#include "plan/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "darkroom/core/check.h"
#include "darkroom/plan/plan.h"
#include "plan/plan_random.h"
#include "shipped_catalogue.h"

namespace darkroom {
namespace {

double mean_hours(const std::vector<SimulatedRun>& runs) {
  return std::accumulate(runs.begin(), runs.end(), 0.0, [](double sum, const SimulatedRun& run) { return sum + run.hours; }) /
         static_cast<double>(runs.size());
}

TEST(PlanRandom, draws_what_its_names_say) {
  constexpr uint32_t kDraws = 20'000;
  double uniform = 0, exponential = 0, normal = 0, square = 0;
  const PlanRandom random(5, "key", 3);
  for (uint32_t i = 0; i < kDraws; ++i) {
    uniform += random.uniform(i);
    exponential += random.exponential(i, 7);
    normal += random.normal(i);
    square += random.normal(i) * random.normal(i);
  }
  const double spread = 4 / std::sqrt(static_cast<double>(kDraws));  // Four standard errors.
  EXPECT_NEAR(uniform / kDraws, 0.5, 0.29 * spread);
  EXPECT_NEAR(exponential / kDraws, 7, 7 * spread);
  EXPECT_NEAR(normal / kDraws, 0, spread);
  EXPECT_NEAR(square / kDraws, 1, 1.5 * spread);
  EXPECT_NE(random.uniform(0), PlanRandom(6, "key", 3).uniform(0));
  EXPECT_NE(random.uniform(0), PlanRandom(5, "kez", 3).uniform(0));
  EXPECT_NE(random.uniform(0), PlanRandom(5, "key", 4).uniform(0));
}

TEST(PlanRandom, draws_students_t) {
  constexpr uint32_t kDraws = 20'000;
  const PlanRandom random(5, "key", 3);
  // Shares below 1 with one and two degrees of freedom, and, as good as normal, with a billion.
  const std::pair<double, double> cases[] = {{1, 0.75}, {2, 0.5 + 1 / (2 * std::sqrt(3.0))}, {1e9, 0.841345}};
  for (const auto& [degrees, share] : cases) {
    int64_t num_below = 0;
    for (uint32_t i = 0; i < kDraws; ++i) {
      num_below += random.student_t(i, degrees) < 1 ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(num_below) / kDraws, share, 4 * std::sqrt(share * (1 - share) / kDraws)) << degrees;
  }
}

TEST(Simulation, without_losses_takes_the_work_and_its_checkpoints) {
  const LossSimulation simulation{.work_hours = 10, .hours_between = 1e12, .save_interval = 3, .save_hours = 0.5};
  for (const SimulatedRun& run : simulate_losses(simulation, 10, 1, "a")) {
    EXPECT_DOUBLE_EQ(run.hours, 10 + 4 * 0.5);
    EXPECT_DOUBLE_EQ(run.paid_hours, run.hours);
    EXPECT_EQ(run.num_losses, 0);
  }
}

TEST(Simulation, without_checkpoints_is_the_known_expectation) {
  // Work that must be done in one piece takes (e^(w/m) - 1) (m + restart + wait) on the mean.
  const LossSimulation simulation{
      .work_hours = 2, .hours_between = 2, .save_interval = 1000, .save_hours = 0, .wait_hours = 0.5, .restart_hours = 0.25};
  constexpr int64_t kTrials = 40'000;
  const auto runs = simulate_losses(simulation, kTrials, 7, "a");
  const double want = (std::exp(1.0) - 1) * (2 + 0.75);
  double square = 0;
  for (const SimulatedRun& run : runs) {
    square += (run.hours - want) * (run.hours - want);
  }
  const double standard_error = std::sqrt(square / kTrials / kTrials);
  EXPECT_NEAR(mean_hours(runs), want, 4 * standard_error);
}

TEST(Simulation, comes_near_the_expected_value_with_the_best_interval) {
  const double save = 0.01, between = 6;
  const double interval = std::sqrt(2 * save * between);
  const LossSimulation simulation{
      .work_hours = 411, .hours_between = between, .save_interval = interval, .save_hours = save, .wait_hours = 0.5, .restart_hours = 0.1};
  const double share = save / interval + (interval / 2 + 0.1 + 0.5) / between;
  EXPECT_NEAR(mean_hours(simulate_losses(simulation, 2000, 3, "a")), 411 * (1 + share), 411 * 0.02);
}

TEST(Simulation, is_a_function_of_seed_trial_and_key) {
  const LossSimulation simulation{
      .work_hours = 100, .hours_between = 5, .save_interval = 1, .save_hours = 0.1, .wait_hours = 1, .restart_hours = 0.1};
  const auto hours = [&](int64_t trials, uint64_t seed, const char* key) {
    std::vector<double> values;
    for (const SimulatedRun& run : simulate_losses(simulation, trials, seed, key)) {
      values.push_back(run.hours);
    }
    return values;
  };
  const auto ten = hours(10, 1, "a"), twenty = hours(20, 1, "a");
  EXPECT_TRUE(std::equal(ten.begin(), ten.end(), twenty.begin()));
  EXPECT_NE(ten, hours(10, 2, "a"));
  EXPECT_NE(ten, hours(10, 1, "b"));
}

TEST(Quantile, is_the_nearest_rank) {
  EXPECT_EQ(quantile({1, 2, 3, 4}, 0.5), 2);
  EXPECT_EQ(quantile({1, 2, 3, 4}, 0.05), 1);
  EXPECT_EQ(quantile({1, 2, 3, 4}, 0.95), 4);
  EXPECT_EQ(quantile({1}, 1), 1);
  EXPECT_THROW(static_cast<void>(quantile({}, 0.5)), CheckFailure);
}

TEST(Forecast, has_bands_in_order_and_spot_loses_most) {
  const auto plan = make_plan(shipped_catalogue(), {});
  ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
  ASSERT_EQ(plan->forecasts.size(), 3U);
  for (const char* purchase : {"on_demand", "reserved", "spot"}) {
    const auto value = [&](const std::string& name) { return plan->sheet.value(name); };
    const std::string p = purchase;
    EXPECT_LE(value("train_hours"), value("hours_" + p + "_p5")) << p;
    EXPECT_LE(value("hours_" + p + "_p5"), value("hours_" + p + "_p50")) << p;
    EXPECT_LE(value("hours_" + p + "_p50"), value("hours_" + p + "_p95")) << p;
    EXPECT_LE(value("dollars_" + p + "_p5"), value("dollars_" + p + "_p95")) << p;
    EXPECT_LE(value("hours_" + p + "_p5"), value("expected_hours_" + p)) << p;
    EXPECT_NEAR(value("expected_total_dollars_" + p) - value("total_dollars_" + p),
                value("expected_dollars_" + p) - value("train_dollars_" + p), 1e-6);
  }
  EXPECT_GT(plan->sheet.value("hours_spot_p50"), plan->sheet.value("hours_reserved_p95"));
}

TEST(Forecast, says_why_it_did_not_simulate) {
  PlanRequest request;
  request.fleet = "train=100000xp4de.24xlarge";
  const auto crowded = make_plan(shipped_catalogue(), request);
  ASSERT_TRUE(crowded.is_ok()) << crowded.status().to_string();
  EXPECT_NE(crowded->forecasts.back().not_simulated.find("more time is lost than used"), std::string::npos);
  request = {};
  request.samples_256 = 1'000'000'000'000'000;
  const auto endless = make_plan(shipped_catalogue(), request);
  ASSERT_TRUE(endless.is_ok()) << endless.status().to_string();
  EXPECT_NE(endless->forecasts.back().not_simulated.find("more than 20000 losses"), std::string::npos);
  EXPECT_NE(endless->to_json().dump().find("not_simulated"), std::string::npos);
}

}  // namespace
}  // namespace darkroom
