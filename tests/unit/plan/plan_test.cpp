#include "darkroom/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "shipped_catalogue.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

Plan plan_of(const PlanRequest& request, const MeasuredRates& measured = {}) {
  auto plan = make_plan(shipped_catalogue(), request, measured);
  EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
  return std::move(plan).value();
}

PlanRequest quick(int64_t samples_256, int64_t samples_512) {
  PlanRequest request;
  request.samples_256 = samples_256;
  request.samples_512 = samples_512;
  request.num_trials = 20;
  return request;
}

TEST(Plan, without_arguments_is_the_published_run) {
  const Plan plan = plan_of({});
  EXPECT_EQ(plan.sheet.value("samples_256"), 1'126'400'000);
  EXPECT_EQ(plan.sheet.value("samples_512"), 1'740'800'000);
  EXPECT_EQ(std::round(plan.sheet.value("train_accelerator_hours")), 13165);
  EXPECT_EQ(std::round(plan.sheet.value("train_dollars_reserved")), 39511);
  EXPECT_EQ(std::round(plan.sheet.value("train_dollars_on_demand")), 67405);
  EXPECT_NEAR(plan.sheet.value("train_hours") / 24, 17.1, 0.05);
  ASSERT_EQ(plan.published.size(), 5U);
  for (const PublishedCheck& check : plan.published) {
    EXPECT_EQ(std::round(check.planned), check.published.value) << check.published.figure;
  }
  EXPECT_THAT(plan.left_out.front(), HasSubstr("training alone"));
}

TEST(Plan, reproduces_the_other_published_table) {
  PlanRequest request;
  request.fleet = "train=4xmosaicml-8xa100";
  const Plan plan = plan_of(request);
  EXPECT_EQ(std::round(plan.sheet.value("train_accelerator_hours")), 15403);
  EXPECT_NEAR(plan.sheet.value("train_hours") / 24, 20.06, 0.005);
  EXPECT_NEAR(plan.sheet.value("train_dollars_on_demand"), 30805, 1);
  EXPECT_TRUE(plan.published.empty());
  EXPECT_THAT(plan.left_out, ::testing::Contains(HasSubstr("no encode= group")));
}

TEST(Plan, sees_that_the_published_encoders_are_the_tight_stage) {
  const Plan plan = plan_of({});
  EXPECT_NEAR(plan.sheet.value("encode_speed_256"), 3600, 1e-9);
  EXPECT_NEAR(plan.sheet.value("encode_speed_512"), 1200, 1e-9);
  EXPECT_LT(plan.sheet.value("encode_balance_256"), 1);
  EXPECT_EQ(plan.sheet.value("encode_machines_needed_256"), 60);
  EXPECT_EQ(plan.sheet.value("encode_machines_needed_512"), 57);
}

TEST(Plan, works_out_a_missing_count_so_that_nobody_waits) {
  PlanRequest request = quick(1'000'000, 1'000'000);
  request.fleet = "train=4xp4de.24xlarge,encode=g5.2xlarge,download=m5.8xlarge";
  const Plan plan = plan_of(request);
  EXPECT_EQ(plan.sheet.value("encode_machines"), 60);
  EXPECT_GE(plan.sheet.value("encode_balance_256"), 1);
  EXPECT_GE(plan.sheet.value("encode_balance_512"), 1);
  EXPECT_EQ(plan.sheet.value("online_speed_256"), plan.sheet.value("train_speed_256"));
  EXPECT_EQ(plan.sheet.value("download_machines"), std::ceil(4439.1456 / (144.6 * 0.6)));
}

TEST(Plan, traces_every_figure_to_a_source_or_to_figures_before_it) {
  const Plan plan = plan_of({});
  std::set<std::string> seen;
  for (const Figure& figure : plan.sheet.figures()) {
    EXPECT_NE(figure.formula.empty(), figure.source.empty()) << figure.name;
    EXPECT_FALSE(figure.label.empty()) << figure.name;
    EXPECT_FALSE(figure.unit.empty()) << figure.name;
    for (const std::string& input : figure.inputs) {
      EXPECT_TRUE(seen.contains(input)) << figure.name << " " << input;
    }
    seen.insert(figure.name);
  }
}

TEST(Plan, refuses_what_cannot_be_planned) {
  const struct {
    const char* name;
    std::function<void(PlanRequest&)> change;
    std::vector<std::string> words;
  } cases[] = {
      {"none", [](PlanRequest& one) { one.samples_256 = one.samples_512 = 0; }, {"--samples-256", "--samples-512", "nothing"}},
      {"negative", [](PlanRequest& one) { one.samples_256 = -1; }, {"--samples-256", "-1"}},
      {"huge", [](PlanRequest& one) { one.samples_512 = int64_t{1} << 60; }, {"--samples-512", "1000000000000000"}},
      {"trials", [](PlanRequest& one) { one.num_trials = 0; }, {"--trials", "0"}},
      {"fleet", [](PlanRequest& one) { one.fleet = "9xnothing"; }, {"9xnothing"}},
      {"no rate", [](PlanRequest& one) { one.fleet = "1xg5.2xlarge"; }, {"task = \"train\"", "256 px", "g5.2xlarge", "A10G", "--from"}},
      {"no encode rate",
       [](PlanRequest& one) { one.fleet = "1xp4de.24xlarge,encode=1xp4de.24xlarge"; },
       {"task = \"encode\"", "p4de.24xlarge"}},
      {"no download rate", [](PlanRequest& one) { one.fleet = "1xp4de.24xlarge,download=1xg5.2xlarge"; }, {"task = \"download\""}},
      {"store", [](PlanRequest& one) { one.store = "s3-standrd"; }, {"s3-standrd", "did you mean 's3-standard'"}},
      {"steps", [](PlanRequest& one) { one.predict = PredictRequest{.steps = 10}; }, {"--steps", "--from"}},
  };
  for (const auto& one : cases) {
    PlanRequest request;
    one.change(request);
    const auto plan = make_plan(shipped_catalogue(), request);
    ASSERT_FALSE(plan.is_ok()) << one.name;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << one.name;
    for (const std::string& word : one.words) {
      EXPECT_THAT(plan.status().message(), HasSubstr(word)) << one.name;
    }
  }
}

TEST(Plan, uses_what_was_measured_in_place_of_the_catalogue) {
  MeasuredRates measured;
  measured.from = "run";
  measured.train = MeasuredRate{.resolution = 256, .per_second = 100};
  measured.encode = MeasuredRate{.resolution = 128, .per_second = 40};
  measured.download = MeasuredRate{.resolution = 0, .per_second = 7};
  measured.picture_bytes = 5000;
  measured.download_success = 0.9;
  const Plan plan = plan_of(quick(1'000'000, 1'000'000), measured);
  EXPECT_EQ(plan.sheet.value("train_rate_256"), 100);
  EXPECT_NEAR(plan.sheet.value("train_rate_512"), 100 * 543.3 / 2412.8, 1e-9);
  EXPECT_DOUBLE_EQ(plan.sheet.value("encode_rate_256"), 10);
  EXPECT_DOUBLE_EQ(plan.sheet.value("encode_rate_512"), 2.5);
  EXPECT_EQ(plan.sheet.value("download_rate"), 7);
  EXPECT_EQ(plan.sheet.value("picture_bytes"), 5000);
  EXPECT_EQ(plan.sheet.figure("download_success").source, "measured: run");
  EXPECT_THAT(plan.notes, ::testing::Contains(HasSubstr("at 512 px was not measured")));
  EXPECT_TRUE(plan.published.empty());
}

TEST(Plan, predicts_another_run_from_a_measured_one) {
  MeasuredRates measured;
  measured.from = "run";
  measured.train = MeasuredRate{.resolution = 64, .per_second = 100};
  measured.steps = MeasuredSteps{.resolution = 64,
                                 .batch = 64,
                                 .micro = 16,
                                 .workers = 2,
                                 .save_every = 50,
                                 .start_seconds = 3,
                                 .pass_seconds = 0.4,
                                 .update_seconds = 0.1,
                                 .between_seconds = 0.01,
                                 .save_seconds = 2};
  PlanRequest request = quick(1'000'000, 0);
  request.predict = PredictRequest{.steps = 100, .batch = 0};
  EXPECT_DOUBLE_EQ(plan_of(request, measured).sheet.value("predicted_seconds"), 3 + 100 * 0.51 + 2 * 2);
  request.predict->batch = 128;  // Four rounds of two passes in place of two.
  EXPECT_DOUBLE_EQ(plan_of(request, measured).sheet.value("predicted_seconds"), 3 + 100 * 0.91 + 2 * 2);
  request.predict->batch = 16;  // One pass, and the other worker idles.
  EXPECT_DOUBLE_EQ(plan_of(request, measured).sheet.value("predicted_seconds"), 3 + 100 * 0.31 + 2 * 2);
}

// Properties that hold for every plan, each tried with 200 seeds.
class PlanProperty : public ::testing::TestWithParam<int> {
 protected:
  PlanProperty() : random_(static_cast<uint64_t>(GetParam())) {}

  int64_t below(int64_t bound) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound)); }

  PlanRequest any_request() {
    PlanRequest request = quick(1 + below(2'000'000'000), 1 + below(2'000'000'000));
    const char* const trainers[] = {"p4de.24xlarge", "p4d.24xlarge", "p5.48xlarge", "mosaicml-8xa100"};
    request.fleet = "train=" + std::to_string(1 + below(64)) + "x" + trainers[below(4)];
    const int64_t encoders = below(3);
    request.fleet += encoders == 0 ? "" : ",encode=" + (encoders == 1 ? "" : std::to_string(1 + below(200)) + "x") + "g5.2xlarge";
    request.fleet += below(2) == 0 ? "" : ",download=" + std::to_string(1 + below(40)) + "xm5.8xlarge";
    request.seed = random_();
    request.num_trials = 5;
    return request;
  }

  std::mt19937_64 random_;
};

void expect_near(double got, double want, const std::string& what) { EXPECT_NEAR(got, want, 1e-9 * std::abs(want)) << what; }

TEST_P(PlanProperty, twice_the_samples_take_twice_the_hours_and_dollars) {
  const PlanRequest request = any_request();
  PlanRequest doubled = request;
  doubled.samples_256 *= 2;
  doubled.samples_512 *= 2;
  const Plan one = plan_of(request), two = plan_of(doubled);
  for (const char* figure : {"train_hours_256", "train_hours_512", "train_hours", "train_accelerator_hours", "train_kwh",
                             "online_same_hours", "train_read_gb", "train_dollars_on_demand", "online_same_dollars"}) {
    expect_near(two.sheet.value(figure), 2 * one.sheet.value(figure), figure);
  }
  if (one.sheet.has("online_pool_hours")) {
    expect_near(two.sheet.value("online_pool_hours"), 2 * one.sheet.value("online_pool_hours"), "online_pool_hours");
    EXPECT_LE(two.sheet.value("encode_hours"), 2 * one.sheet.value("encode_hours") * (1 + 1e-12));
  }
}

TEST_P(PlanProperty, twice_the_trainers_take_half_the_hours_for_the_same_dollars) {
  const Plan one = plan_of(any_request());
  const Sheet two = one.sheet.with({{"train_machines", 2 * one.sheet.value("train_machines")}});
  expect_near(two.value("train_hours"), one.sheet.value("train_hours") / 2, "train_hours");
  for (const char* figure : {"train_accelerator_hours", "train_dollars_on_demand", "train_kwh"}) {
    expect_near(two.value(figure), one.sheet.value(figure), figure);
  }
}

TEST_P(PlanProperty, totals_are_the_sums_of_their_parts) {
  const Plan plan = plan_of(any_request());
  const Sheet& sheet = plan.sheet;
  for (const std::string& purchase : plan.purchases) {
    double sum = sheet.value("storage_dollars") + sheet.value("request_dollars") + sheet.value("traffic_dollars");
    for (const char* role : {"train_dollars_", "encode_dollars_", "download_dollars_"}) {
      sum += sheet.has(role + purchase) ? sheet.value(role + purchase) : 0;
    }
    expect_near(sheet.value("total_dollars_" + purchase), sum, purchase);
  }
  expect_near(
      sheet.value("train_accelerator_hours"),
      sheet.value("samples_256") / sheet.value("train_rate_256") / 3600 + sheet.value("samples_512") / sheet.value("train_rate_512") / 3600,
      "train_accelerator_hours");
  for (const Figure& figure : sheet.figures()) {
    EXPECT_TRUE(std::isfinite(figure.value) && figure.value >= 0) << figure.name << " " << figure.value;
  }
}

TEST_P(PlanProperty, higher_prices_and_slower_machines_never_cost_less) {
  const Plan plan = plan_of(any_request());
  const std::string total = "total_dollars_" + plan.purchases.front();
  for (const auto& [name, factor] : {std::pair(std::string("train_rate_256"), 0.5), std::pair("train_price_" + plan.purchases.front(), 2.0),
                                     std::pair(std::string("store_price"), 3.0), std::pair(std::string("picture_bytes"), 1.5),
                                     std::pair(std::string("download_success"), 0.7)}) {
    const Sheet changed = plan.sheet.with({{name, plan.sheet.value(name) * factor}});
    EXPECT_GE(changed.value(total), plan.sheet.value(total) * (1 - 1e-12)) << name;
  }
}

TEST_P(PlanProperty, the_same_request_gives_the_same_bytes) {
  const PlanRequest request = any_request();
  const Plan one = plan_of(request), two = plan_of(request);
  EXPECT_EQ(one.to_json().dump(), two.to_json().dump());
  EXPECT_EQ(one.to_csv(), two.to_csv());
  EXPECT_EQ(one.to_text(), two.to_text());
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlanProperty, ::testing::Range(0, 200));

}  // namespace
}  // namespace darkroom
