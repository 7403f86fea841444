#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "darkroom/plan/plan.h"
#include "shipped_catalogue.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

TEST(PlanOutput, prints_numbers_for_people) {
  const std::pair<double, const char*> cases[] = {{0, "0"},
                                                  {1, "1"},
                                                  {0.5, "0.5"},
                                                  {999.4, "999.4"},
                                                  {13165.0048, "13,165"},
                                                  {1126400000, "1,126,400,000"},
                                                  {-2500, "-2,500"},
                                                  {0.00001, "1.000e-05"},
                                                  {2e15, "2.000e+15"},
                                                  {-123456, "-123,456"}};
  for (const auto& [value, text] : cases) {
    EXPECT_EQ(plan_number_text(value), text);
  }
}

TEST(PlanOutput, says_the_seeds_table_on_the_terminal) {
  const auto plan = make_plan(shipped_catalogue(), {});
  ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
  const std::string text = plan->to_text();
  for (const char* word : {"13,165", "$39,511", "$67,405", "1,126,400,000", "1,740,800,000", "Left out", "Offline or online", "spot"}) {
    EXPECT_THAT(text, HasSubstr(word));
  }
}

TEST(PlanOutput, has_a_csv_line_a_figure_with_its_trace) {
  const auto plan = make_plan(shipped_catalogue(), {});
  ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
  const std::string csv = plan->to_csv();
  EXPECT_EQ(static_cast<size_t>(std::count(csv.begin(), csv.end(), '\n')), plan->sheet.figures().size() + 1);
  EXPECT_THAT(csv, HasSubstr("hours,train_hours,training,"));
  EXPECT_THAT(csv, HasSubstr(",h,train_hours_256 + train_hours_512,train_hours_256 train_hours_512,\n"));
  EXPECT_THAT(csv, HasSubstr("\"prices/catalogue.toml: "));  // Sources hold commas.
}

TEST(PlanOutput, has_every_figure_in_the_json_with_formula_or_source) {
  const auto plan = make_plan(shipped_catalogue(), {});
  ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
  const auto json = plan->to_json();
  EXPECT_EQ(json["format_version"], 1);
  ASSERT_EQ(json["figures"].size(), plan->sheet.figures().size());
  for (const auto& figure : json["figures"]) {
    EXPECT_TRUE(figure.contains("source") != (figure.contains("formula") && figure.contains("inputs"))) << figure.dump();
  }
  EXPECT_EQ(json["published"].size(), 5U);
  EXPECT_EQ(json["modes"].size(), 3U);
}

}  // namespace
}  // namespace darkroom
