#include "plan/comparison_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/files/memory_files.h"
#include "darkroom/plan/plan.h"
#include "shipped_catalogue.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kCase = R"([revenue]
now_per_year = 150e6
then_per_year = 200e6

[comparison]
report = "compared/report.json"
measure = "clip_score"
custom_model = "B"
)";

// What compare writes of two measures; the fields that nobody reads here are left out.
Json some_report() {
  return {{"format", "darkroom comparison report"},
          {"version", 2},
          {"measures", Json::array({{{"name", "fid"}, {"higher_is_better", false}, {"standard_error", nullptr}},
                                    {{"name", "clip_score"},
                                     {"higher_is_better", true},
                                     {"a", 24.0},
                                     {"b", 25.0},
                                     {"difference", -1.0},
                                     {"standard_error", 0.5},
                                     {"num_prompts", 3}}})}};
}

Result<BusinessCase> load_case(const std::string& report, const std::string& text = kCase) {
  MemoryFileSystem files;
  EXPECT_TRUE(files.create_folders("compared").is_ok());
  EXPECT_TRUE(write_file_atomic(files, "case.toml", text).is_ok());
  EXPECT_TRUE(write_file_atomic(files, "compared/report.json", report).is_ok());
  return load_business_case(files, "case.toml");
}

Plan plan_with(const Json& report, uint64_t seed = 0) {
  const auto given = load_case(report.dump());
  EXPECT_TRUE(given.is_ok()) << given.status().to_string();
  PlanRequest request;
  request.seed = seed;
  auto plan = make_plan(shipped_catalogue(), request, {}, *given);
  EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
  return std::move(plan).value();
}

// The chance of a Student's t with two degrees of freedom above `value`.
double t2_above(double value) { return 0.5 - value / (2 * std::sqrt(2 + value * value)); }

TEST(ComparisonReport, gives_the_scores_and_the_error_of_their_difference) {
  const auto given = load_case(some_report().dump());
  ASSERT_TRUE(given.is_ok()) << given.status().to_string();
  EXPECT_EQ(given->comparison->custom, 25);
  EXPECT_EQ(given->comparison->open, 24);
  EXPECT_EQ(given->comparison->difference_error, 0.5);
  EXPECT_EQ(given->comparison->num_prompts, 3);
  const auto turned = load_case(some_report().dump(), with_replaced(kCase, "\"B\"", "\"A\""));
  EXPECT_EQ(turned->comparison->custom, 24);
  EXPECT_EQ(turned->comparison->open, 25);
}

TEST(ComparisonReport, pays_in_the_share_of_draws_that_students_distribution_says) {
  Json report = some_report();
  for (const double b : {24.5, 26.0, 27.0}) {
    Json& measure = report["measures"][1];
    measure["b"] = b;
    measure["difference"] = 24.0 - b;
    const Plan plan = plan_with(report);
    // The outcome is stake * difference / custom - project, so it is above 0 from this difference on.
    const double enough = b * plan.sheet.value("project_dollars") / (plan.sheet.value("gain") * plan.sheet.value("years"));
    const double want = t2_above((enough - (b - 24.0)) / 0.5);
    EXPECT_NEAR(plan.business->share_worth_it, want, 4 * std::sqrt(want * (1 - want) / 10'000)) << b;
    EXPECT_NEAR(plan.sheet.value("open_score"), 24, 1e-12);
  }
}

TEST(ComparisonReport, of_many_prompts_draws_the_band_of_the_normal_distribution) {
  Json report = some_report();
  report["measures"][1]["num_prompts"] = 1'000'000;
  const Plan plan = plan_with(report);
  const double stake = plan.sheet.value("gain"), project = plan.sheet.value("project_dollars");
  const auto outcome = [&](double difference) { return stake * difference / 25 - project; };
  const double spread = 0.5 * 4 * std::sqrt(0.05 * 0.95 / 10'000) / 0.1031;  // Four errors of a quantile where the density is 0.1031.
  EXPECT_NEAR(plan.sheet.value("custom_net_p95"), outcome(1 + 1.6449 * 0.5), stake / 25 * spread);
  EXPECT_NEAR(plan.sheet.value("custom_net_p50"), outcome(1), stake / 25 * spread);
  EXPECT_NE(plan_with(report, 1).business->outcomes, plan.business->outcomes);
}

TEST(ComparisonReport, of_a_sure_difference_leaves_one_outcome) {
  Json report = some_report();
  report["measures"][1]["standard_error"] = 0.0;
  const Plan plan = plan_with(report);
  EXPECT_EQ(plan.business->outcomes.front(), plan.business->outcomes.back());
  EXPECT_NEAR(plan.business->outcomes.front(), plan.sheet.value("custom_net_dollars"), 1e-6);
}

TEST(ComparisonReport, is_named_in_the_answer_and_in_the_sensitivity) {
  const Plan plan = plan_with(some_report());
  EXPECT_THAT(plan.business->replies[2].answer,
              HasSubstr("by clip_score over 3 prompts the custom model has 25 and the open one 24, a paired difference of 1 +- 0.5"));
  EXPECT_EQ(plan.sheet.figure("score_difference").source, "compared/report.json: clip_score over 3 prompts");
  const auto& rows = plan.business->sensitivity;
  EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [](const SensitivityRow& row) { return row.figure == "score_difference"; }));
}

TEST(ComparisonReport, that_is_none_is_refused_by_name) {
  EXPECT_EQ(load_case("{}").status().code(), StatusCode::kCorruptData);
  for (const std::string& text : {std::string(), std::string("[1]"), std::string("{\"format\": \"darkroom comparison\"}"),
                                  std::string(100'000, '['), std::string("\xff\xfe")}) {
    const Status status = load_case(text).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << text.substr(0, 40);
    EXPECT_THAT(status.message(), HasSubstr("case.toml: [comparison] report"));
    EXPECT_THAT(status.message(), HasSubstr("compared/report.json"));
  }
  MemoryFileSystem files;
  ASSERT_TRUE(write_file_atomic(files, "case.toml", kCase).is_ok());
  EXPECT_EQ(load_business_case(files, "case.toml").status().code(), StatusCode::kNotFound);
}

TEST(ComparisonReport, of_the_version_without_standard_errors_says_how_to_get_them) {
  Json report = some_report();
  report["version"] = 1;
  const Status status = load_case(report.dump()).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("writes only the report anew"));
  report["version"] = 3;
  EXPECT_THAT(load_case(report.dump()).status().message(), HasSubstr("only version 2 is known, got: 3"));
}

TEST(ComparisonReport, with_a_field_missing_or_wrong_is_refused_by_its_name) {
  const struct {
    const char* key;
    Json value;
    StatusCode code;
    const char* words;
  } cases[] = {
      {"a", Json(), StatusCode::kCorruptData, "clip_score: a must be a number, got: nothing"},
      {"b", "25", StatusCode::kCorruptData, "b must be a number, got: \"25\""},
      {"difference", 3.0, StatusCode::kCorruptData, "difference must be a - b (24 - 25), got: 3.0"},
      {"standard_error", Json(), StatusCode::kFailedPrecondition, "no standard error"},
      {"standard_error", -0.5, StatusCode::kCorruptData, "standard_error must be from 0, got: -0.5"},
      {"num_prompts", 1, StatusCode::kCorruptData, "num_prompts must be a whole number from 2, got: 1"},
      {"num_prompts", 2.5, StatusCode::kCorruptData, "num_prompts must be a whole number from 2, got: 2.5"},
      {"higher_is_better", false, StatusCode::kFailedPrecondition, "less is better"},
      {"higher_is_better", Json(), StatusCode::kFailedPrecondition, "less is better"},
      {"name", 7, StatusCode::kCorruptData, "a measure has no name"},
      {"name", "clip", StatusCode::kFailedPrecondition, "it has: fid, clip; got: clip_score"},
  };
  for (const auto& one : cases) {
    Json report = some_report();
    report["measures"][1][one.key] = one.value;
    const Status status = load_case(report.dump()).status();
    EXPECT_EQ(status.code(), one.code) << one.key;
    EXPECT_THAT(status.message(), HasSubstr(one.words)) << one.key;
    EXPECT_THAT(status.message(), HasSubstr("compared/report.json")) << one.key;
  }
  Json report = some_report();
  report["measures"] = "none";
  EXPECT_THAT(load_case(report.dump()).status().message(), HasSubstr("measures must be a list"));
  report = some_report();
  report["version"] = "two";
  EXPECT_THAT(load_case(report.dump()).status().message(), HasSubstr("version must be a number, got: \"two\""));
}

TEST(ComparisonReport, of_a_score_at_or_below_zero_is_refused) {
  Json report = some_report();
  Json& measure = report["measures"][1];
  measure["b"] = 0.0;
  measure["difference"] = 24.0;
  EXPECT_THAT(load_case(report.dump()).status().message(), HasSubstr("scores above 0 (custom, open): 0 24"));
}

TEST(ComparisonReport, is_instead_of_scores_that_are_typed_in) {
  const struct {
    const char* from;
    const char* to;
    const char* words;
  } cases[] = {
      {"measure = \"clip_score\"", "", "[comparison] measure is missing"},
      {"custom_model = \"B\"", "", "[comparison] custom_model is missing"},
      {"custom_model = \"B\"", "custom_model = \"C\"", "'C'"},
      {"custom_model = \"B\"", "custom_model = \"B\"\nopen_error = 0.1", "'open_error'"},
  };
  for (const auto& one : cases) {
    const Status status = load_case(some_report().dump(), with_replaced(kCase, one.from, one.to)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << one.to;
    EXPECT_THAT(status.message(), HasSubstr(one.words)) << one.to;
  }
}

}  // namespace
}  // namespace darkroom
