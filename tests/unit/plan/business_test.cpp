#include "darkroom/plan/business.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "darkroom/plan/plan.h"
#include "shipped_catalogue.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

// The challenge's example: $150M -> $200M a year against $5M of compute.
constexpr const char* kChallenge = R"(
[revenue]
now_per_year = 150e6
then_per_year = 200e6

[budget]
share_of_gain = 0.1
asked_dollars = 5e6
other_dollars = 1_500_000

[[use]]
where = "shop pages"
how = "a picture of each new product in its surroundings"
pictures_per_year = 40e6
dollars_per_picture = 1.0
seconds_per_picture = 2.5
machine = "g5.2xlarge"

[[use]]
where = "letters"
how = "one picture for each"
pictures_per_year = 60e6
dollars_per_picture = 0.2
seconds_per_picture = 2.5
machine = "g5.2xlarge"

[comparison]
metric = "share of pictures that reviewers accept"
custom = 0.70
custom_error = 0.02
open = 0.50
open_error = 0.02
)";

Plan plan_for(const std::string& text) {
  auto given = parse_business_case(text, "case.toml");
  EXPECT_TRUE(given.is_ok()) << given.status().to_string();
  auto plan = make_plan(shipped_catalogue(), {}, {}, *given);
  EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
  return std::move(plan).value();
}

TEST(Business, solves_the_challenges_example) {
  const Plan plan = plan_for(kChallenge);
  EXPECT_DOUBLE_EQ(plan.sheet.value("gain"), 50e6);
  EXPECT_DOUBLE_EQ(plan.sheet.value("budget_dollars"), 5e6);
  EXPECT_DOUBLE_EQ(plan.sheet.value("asked_share"), 0.1);
  EXPECT_NEAR(plan.sheet.value("asked_payback_months"), 6.5 / 50 * 12, 1e-9);
  EXPECT_NEAR(plan.sheet.value("budget_accelerator_hours"), 5e6 / 5.12, 1e-3);
  EXPECT_NEAR(plan.sheet.value("project_dollars"), plan.sheet.value("expected_total_dollars_on_demand") + 1.5e6, 1e-6);
  EXPECT_NEAR(plan.sheet.value("use1_cost"), 2.5 / 3600 * 1.212, 1e-12);
}

TEST(Business, what_is_paid_every_year_pays_nothing_back) {
  const auto case_of = [](const char* running) {
    return "[revenue]\nnow_per_year = 0\nthen_per_year = 1e6\n[budget]\nasked_dollars = 1e6\nrunning_dollars_per_year = " +
           std::string(running) + "\n";
  };
  const Plan late = plan_for(case_of("0.95e6"));
  EXPECT_NEAR(late.sheet.value("payback_months"), late.sheet.value("project_dollars") / 0.05e6 * 12, 1e-6);
  EXPECT_NEAR(late.sheet.value("asked_payback_months"), 20 * 12, 1e-9);
  EXPECT_THAT(late.business->replies[0].answer, HasSubstr("$50,000 a year"));
  for (const char* running : {"1e6", "2e6"}) {
    const Plan never = plan_for(case_of(running));
    EXPECT_FALSE(never.sheet.has("payback_months") || never.sheet.has("asked_payback_months"));
    EXPECT_THAT(never.business->replies[0].answer, HasSubstr("pays it back never"));
    EXPECT_THAT(never.business->replies[0].answer, HasSubstr("come back never"));
  }
}

TEST(Business, answers_its_three_questions) {
  const Plan plan = plan_for(kChallenge);
  ASSERT_EQ(plan.business->replies.size(), 3U);
  EXPECT_THAT(plan.business->replies[0].answer, HasSubstr("$5,000,000"));
  const std::string& use = plan.business->replies[1].answer;
  EXPECT_LT(use.find("shop pages"), use.find("letters"));  // By what they bring.
  EXPECT_THAT(plan.business->replies[2].answer, HasSubstr("Yes: by share of pictures that reviewers accept"));
  EXPECT_GT(plan.business->share_worth_it, 0.95);
}

TEST(Business, does_not_decide_what_the_measurement_does_not) {
  const std::string close = with_replaced(kChallenge, "open = 0.50", "open = 0.67");
  EXPECT_THAT(plan_for(close).business->replies[2].answer, HasSubstr("The measurement does not decide it"));
  const std::string better = with_replaced(kChallenge, "open = 0.50", "open = 0.80");
  const Plan plan = plan_for(better);
  EXPECT_THAT(plan.business->replies[2].answer, HasSubstr("No: by"));
  EXPECT_EQ(plan.sheet.value("custom_advantage"), 0);
}

TEST(Business, without_comparison_and_uses_says_that_it_does_not_know) {
  const Plan plan = plan_for("[revenue]\nnow_per_year = 0\nthen_per_year = 1e6\n");
  EXPECT_THAT(plan.business->replies[1].answer, HasSubstr("does not say"));
  EXPECT_THAT(plan.business->replies[2].answer, HasSubstr("Not known"));
  EXPECT_EQ(plan.business->outcome_figure, "net_dollars");
  EXPECT_TRUE(plan.business->outcomes.empty());
}

TEST(Business, says_what_the_outcome_depends_on) {
  const Plan plan = plan_for(kChallenge);
  const auto& rows = plan.business->sensitivity;
  ASSERT_GE(rows.size(), 6U);
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_GE(std::abs(rows[i - 1].high_outcome - rows[i - 1].low_outcome), std::abs(rows[i].high_outcome - rows[i].low_outcome));
  }
  for (const SensitivityRow& row : rows) {
    const bool is_good_when_high = row.figure == "revenue_then" || row.figure == "margin" || row.figure == "years" ||
                                   row.figure == "custom_score" || row.figure.starts_with("train_rate");
    EXPECT_EQ(row.high_outcome > row.low_outcome, is_good_when_high) << row.figure;
  }
}

TEST(Business, names_file_line_key_and_value_of_what_it_refuses) {
  const struct {
    const char* from;
    const char* to;
    std::vector<std::string> words;
  } cases[] = {
      {"[revenue]", "[revenu]", {"case.toml", "[revenue] is missing"}},
      {"now_per_year = 150e6", "now_per_year = 250e6", {"case.toml, line 4", "[revenue] then_per_year", "must be above now_per_year"}},
      {"now_per_year = 150e6", "now_per_year = -1", {"[revenue] now_per_year", "from 0", "-1"}},
      {"now_per_year = 150e6", "", {"[revenue] now_per_year is missing"}},
      {"now_per_year = 150e6", "now_per_year = 150e6\nmargn = 0.5", {"[revenue]", "'margn'", "did you mean 'margin'"}},
      {"now_per_year = 150e6", "now_per_year = 150e6\nmargin = 1.5", {"[revenue] margin", "above 0 to 1", "1.5"}},
      {"share_of_gain = 0.1", "share_of_gain = 0", {"[budget] share_of_gain", "above 0"}},
      {"share_of_gain = 0.1", "purchase = \"stolen\"", {"[budget] purchase", "on_demand, reserved, spot", "'stolen'"}},
      {"share_of_gain = 0.1", "sensitivity_percent = 100", {"[budget] sensitivity_percent", "to 90"}},
      {"where = \"shop pages\"", "", {"[[use]] 1 where is missing"}},
      {"pictures_per_year = 40e6", "pictures_per_year = \"many\"", {"[[use]] 1 pictures_per_year", "many"}},
      {"custom = 0.70", "custom = 0", {"[comparison] custom", "above 0"}},
      {"open_error = 0.02", "open_error = -0.02", {"[comparison] open_error", "-0.02"}},
      {"[budget]", "[[revenue]]", {"revenue"}},
      {"[comparison]", "[comparision]", {"'comparision'", "did you mean 'comparison'"}},
      {"[budget]", "[budget", {"case.toml, line ", "this is no TOML"}},
  };
  for (const auto& one : cases) {
    const auto given = parse_business_case(with_replaced(kChallenge, one.from, one.to), "case.toml");
    ASSERT_FALSE(given.is_ok()) << one.to;
    EXPECT_EQ(given.status().code(), StatusCode::kInvalidArgument);
    for (const std::string& word : one.words) {
      EXPECT_THAT(given.status().message(), HasSubstr(word)) << one.to;
    }
  }
  EXPECT_THAT(load_business_case(local_files(), "/nowhere/case.toml").status().message(), HasSubstr("/nowhere/case.toml"));
}

TEST(Business, names_what_the_catalogue_lacks) {
  const struct {
    const char* from;
    const char* to;
    std::vector<std::string> words;
  } cases[] = {
      {"machine = \"g5.2xlarge\"", "machine = \"g5.2xlarg\"", {"case.toml", "[[use]] 1", "g5.2xlarg", "did you mean 'g5.2xlarge'"}},
  };
  for (const auto& one : cases) {
    const auto given = parse_business_case(with_replaced(kChallenge, one.from, one.to), "case.toml");
    ASSERT_TRUE(given.is_ok()) << given.status().to_string();
    const auto plan = make_plan(shipped_catalogue(), {}, {}, *given);
    ASSERT_FALSE(plan.is_ok());
    for (const std::string& word : one.words) {
      EXPECT_THAT(plan.status().message(), HasSubstr(word));
    }
  }
  const auto given = parse_business_case(with_replaced(kChallenge, "share_of_gain = 0.1", "purchase = \"spot\""), "case.toml");
  PlanRequest request;
  request.fleet = "4xp5.48xlarge";
  EXPECT_THAT(make_plan(shipped_catalogue(), request, {}, *given).status().message(),
              HasSubstr("no such price of the trainers, got: spot"));
}

}  // namespace
}  // namespace darkroom
