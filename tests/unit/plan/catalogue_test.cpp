#include "darkroom/plan/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "darkroom/files/file_system.h"
#include "support/source_path.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string one_figure(const std::string& fields) { return R"({"version": 1, "figures": {"speed": {)" + fields + "}}}"; }

TEST(Catalogue, the_shipped_one_tells_value_unit_date_and_source_of_every_figure) {
  Catalogue catalogue;
  const std::string path = source_path("recipes/catalogue.json");
  ASSERT_TRUE(catalogue.add(*read_file(local_files(), path), path).is_ok());
  EXPECT_GE(catalogue.figures().size(), 8u);
  for (const auto& [name, figure] : catalogue.figures()) {
    EXPECT_LE(figure.value.low, figure.value.high) << name;
    EXPECT_THAT(figure.date, testing::MatchesRegex("20..-..-..")) << name;
    EXPECT_GT(figure.source.size(), 5u) << name;
  }
}

TEST(Catalogue, own_figures_go_over_shipped_ones) {
  Catalogue catalogue;
  ASSERT_TRUE(catalogue.add(one_figure(R"("low": 1, "high": 2, "unit": "u", "date": "d", "source": "s")"), "a").is_ok());
  ASSERT_TRUE(catalogue.add(one_figure(R"("low": 3, "high": 3, "unit": "u", "date": "d", "source": "mine")"), "b").is_ok());
  EXPECT_EQ(catalogue.find("speed")->value, (Range{3, 3}));
  EXPECT_EQ(catalogue.find("speed")->source, "mine");
  EXPECT_EQ(catalogue.find("weight").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(catalogue.find("weight").status().message(), HasSubstr("weight"));
}

TEST(Catalogue, no_rate_may_be_0) {
  for (const char* name : {"line_bytes_per_second", "fetch_rows_per_core_second"}) {
    Catalogue catalogue;
    const std::string json =
        fmt::format(R"({{"version": 1, "figures": {{"{}": {{"low": 0, "high": 2, "unit": "u", "date": "d", "source": "s"}}}}}})", name);
    EXPECT_THAT(catalogue.add(json, "mine.json").message(), AllOf(HasSubstr(name), HasSubstr("low must be above 0")));
  }
}

TEST(Catalogue, what_is_wrong_is_named_with_file_figure_and_value_and_changes_nothing) {
  const std::string rest = R"("unit": "u", "date": "d", "source": "s")";
  const struct {
    std::string json;
    std::string named;
  } cases[] = {
      {"no json", "mine.json"},
      {"[]", "mine.json"},
      {R"({"version": 2, "figures": {}})", "2"},
      {R"({"figures": {}})", "null"},
      {R"({"version": 1, "figures": {"speed": 3}})", "speed"},
      {one_figure(R"("high": 2, )" + rest), "low must be a number"},
      {one_figure(R"("low": -1, "high": 2, )" + rest), "-1"},
      {one_figure(R"("low": "1", "high": 2, )" + rest), "low must be a number"},
      {one_figure(R"("low": 1, "high": 1e999, )" + rest), "mine.json"},
      {one_figure(R"("low": 3, "high": 2, )" + rest), "high must not be below low"},
      {one_figure(R"("low": 1, "high": 2, "unit": "u", "date": "d", "source": "")"), "source must be a text"},
      {one_figure(R"("low": 1, "high": 2, "unit": "u", "source": "s")"), "date must be a text"},
  };
  for (const auto& bad : cases) {
    Catalogue catalogue;
    const Status status = catalogue.add(bad.json, "mine.json");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad.json;
    EXPECT_THAT(status.message(), HasSubstr(bad.named)) << bad.json;
    EXPECT_TRUE(catalogue.figures().empty());
  }
}

}  // namespace
}  // namespace darkroom
