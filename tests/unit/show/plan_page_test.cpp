#include "darkroom/show/plan_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/source_path.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

Plan page_plan(const PlanRequest& request, const std::optional<BusinessCase>& business = {}) {
  const auto catalogue = load_catalogue(local_files(), source_path(kCatalogueResource));
  EXPECT_TRUE(catalogue.is_ok()) << catalogue.status().to_string();
  auto plan = make_plan(*catalogue, request, {}, business);
  EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
  return std::move(plan).value();
}

TEST(PlanPage, shows_the_published_run_with_every_figures_trace) {
  const Plan plan = page_plan({});
  const std::string page = render_plan_page(plan);
  for (const char* part : {"<b>13,165 h</b>", "<b>$39,511</b>", "<b>$67,405</b>", "<h2>Published, and planned</h2>", "<h2>Cost</h2>",
                           "<h2>Do the encoders keep up?</h2>", "<h2>Training with lost machines</h2>", "<h2>Left out</h2>",
                           "= samples_256 / train_speed_256 / seconds_per_hour", "quickstart of the published run: $39,511"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  for (const Figure& figure : plan.sheet.figures()) {
    EXPECT_THAT(page, HasSubstr(figure.name + ": "));
  }
  EXPECT_THAT(page, Not(HasSubstr("Business case")));
}

TEST(PlanPage, escapes_what_the_case_says) {
  BusinessCase given{.name = "case.toml", .revenue_now = 1, .revenue_then = 2e6};
  given.uses.push_back({.where = "<script>alert(1)</script>",
                        .how = "a & b",
                        .pictures_per_year = 1,
                        .dollars_per_picture = 1,
                        .seconds_per_picture = 1,
                        .machine = "g5.2xlarge"});
  given.comparison = ModelComparison{.metric = "<b>", .custom = 0.7, .custom_error = 0.01, .open = 0.5, .open_error = 0.01};
  const std::string page = render_plan_page(page_plan({}, given));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(page, HasSubstr("What the outcome depends on"));
  EXPECT_THAT(page, HasSubstr("Draws of the comparison that leave no more"));
}

TEST(PlanPage, of_a_fleet_of_trainers_alone_has_no_empty_tables) {
  PlanRequest request;
  request.fleet = "train=100000xp4de.24xlarge";
  const std::string page = render_plan_page(page_plan(request));
  EXPECT_THAT(page, Not(HasSubstr("Do the encoders keep up?")));
  EXPECT_THAT(page, Not(HasSubstr("Published, and planned")));
  EXPECT_THAT(page, HasSubstr("more time is lost than used"));
}

}  // namespace
}  // namespace darkroom
