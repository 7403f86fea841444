#include "darkroom/tune/search_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SearchAxis axis(const char* text) { return parse_search_axis(text).value(); }

TEST(search_space, reads_values_and_ranges) {
  EXPECT_THAT(axis("optimizer.lr=1e-5,1e-4,1e-3").values, ElementsAre("1e-5", "1e-4", "1e-3"));
  const SearchAxis range = axis("optimizer.lr=1e-5..1e-2:log");
  EXPECT_TRUE(range.is_range() && range.is_log && !range.is_whole);
  EXPECT_DOUBLE_EQ(range.low, 1e-5);
  EXPECT_DOUBLE_EQ(range.high, 1e-2);
  EXPECT_TRUE(axis("a.b=1..8:int").is_whole);
  EXPECT_TRUE(axis("a.b=1..8:int-log").is_whole && axis("a.b=1..8:int-log").is_log);
  EXPECT_FALSE(axis("a.b=-1..0.5").is_log);
  for (const char* text : {"optimizer.lr=1e-05..0.01:log", "a.b=1..8:int-log", "a.b=-1..0.5", "a.b=x,y", "a.b=true"}) {
    EXPECT_EQ(axis(text).to_text(), text);
    EXPECT_EQ(axis(axis(text).to_text().c_str()), axis(text));
  }
}

TEST(search_space, refuses_what_is_no_axis_and_names_it) {
  for (const char* text : {"", "lr", "=1", "lr=", "lr=1,,2", "lr=1,1", "lr=1..", "lr=..1", "lr=1..x", "lr=2..1", "lr=1..1", "lr=0..1:log",
                           "lr=-1..1:log", "lr=1..2:logg", "lr=1..2.5:int", "lr=0..4:int-log", "lr=nan..1", "lr=1..inf", "a:b..c=1..2:x"}) {
    const auto refused = parse_search_axis(text);
    ASSERT_FALSE(refused.is_ok()) << text;
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), HasSubstr(text));
    EXPECT_THAT(refused.status().message(), HasSubstr("--set-range"));
  }
}

TEST(search_space, refuses_ends_whose_distance_is_no_number) {
  const auto refused = parse_search_axis("lr=-1e308..1e308");
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("lr=-1e308..1e308"));
}

TEST(search_space, shares_of_an_axis_stay_inside_it_and_reach_its_ends) {
  for (const char* text : {"a.b=1e-5..1e-2:log", "a.b=-3..7", "a.b=1..8:int", "a.b=1..1000:int-log", "a.b=0.0012345..0.0012349"}) {
    const SearchAxis one = axis(text);
    std::set<std::string> seen;
    double before = one.low;
    for (int i = 0; i < 1000; ++i) {
      const std::string value = one.value_at(i / 1000.0, 1);
      const double number = std::stod(value);
      EXPECT_GE(number, one.low) << text;
      EXPECT_LE(number, one.high) << text;
      EXPECT_GE(number, before) << text;
      before = number;
      seen.insert(value);
    }
    if (one.is_whole && !one.is_log) {
      EXPECT_EQ(seen.size(), 8U);
    }
  }
  EXPECT_EQ(axis("a.b=1..8:int").value_at(0, 1), "1");
  EXPECT_EQ(axis("a.b=1..8:int").value_at(0.999, 1), "8");
  EXPECT_EQ(axis("a.b=x,y,z").value_at(0.34, 1), "y");
  EXPECT_EQ(axis("a.b=x,y,z").value_at(0.999, 1), "z");
}

TEST(search_space, a_logarithmic_axis_gives_each_decade_the_same_part) {
  const SearchAxis one = axis("a.b=1e-5..1e-2:log");
  EXPECT_NEAR(std::log10(std::stod(one.value_at(1.0 / 3, 1))), -4, 0.003);  // Three digits.
  EXPECT_NEAR(std::log10(std::stod(one.value_at(2.0 / 3, 1))), -3, 0.003);
}

TEST(search_space, each_part_of_an_axis_gives_a_value_of_its_own) {
  for (const char* text : {"a.b=0.999..0.9999", "a.b=0.999..0.9999:log", "a.b=1e-5..1e-2:log", "a.b=-1e-3..1e-3", "a.b=100..100.001",
                           "a.b=1e-300..1e-299", "a.b=0..1"}) {
    const SearchAxis one = axis(text);
    for (const int64_t num_parts : {1, 2, 27, 1000}) {
      std::set<double> seen;
      for (const double place : {0.001, 0.5, 0.999}) {
        seen.clear();
        for (int64_t part = 0; part < num_parts; ++part) {
          const double value = std::stod(one.value_at((static_cast<double>(part) + place) / static_cast<double>(num_parts), num_parts));
          EXPECT_GE(value, one.low) << text;
          EXPECT_LE(value, one.high) << text;
          EXPECT_TRUE(seen.empty() || value > *seen.rbegin()) << text << " " << part << " of " << num_parts;
          seen.insert(value);
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(num_parts)) << text;
      }
    }
  }
  EXPECT_EQ(axis("a.b=1e-5..1e-2:log").value_at(0.5, 27), "0.000316");  // Three digits are enough.
}

// Of so narrow a range most parts are one number, and no digits tell their ends apart.
TEST(search_space, a_range_of_few_doubles_gives_each_of_them) {
  for (const auto& [text, num_doubles] : {std::pair("a.b=1..1.0000000000000002", 2U), std::pair("a.b=1..1.0000000000000009", 5U),
                                          std::pair("a.b=1..1.0000000000000009:log", 5U), std::pair("a.b=0..5e-324", 2U)}) {
    const SearchAxis one = axis(text);
    std::set<double> seen;
    for (int part = 0; part < 32; ++part) {
      const double value = std::strtod(one.value_at((part + 0.5) / 32, 32).c_str(), nullptr);  // Which takes 5e-324, too.
      EXPECT_GE(value, one.low) << text;
      EXPECT_LE(value, one.high) << text;
      EXPECT_TRUE(seen.empty() || value >= *seen.rbegin()) << text << " " << part;
      seen.insert(value);
    }
    EXPECT_EQ(seen.size(), num_doubles) << text;
    EXPECT_EQ(one.grid_values(33).size(), num_doubles) << text;
  }
}

TEST(search_space, a_grid_holds_the_ends_once) {
  EXPECT_THAT(axis("a.b=0.999..0.9999").grid_values(3), ElementsAre("0.999", "0.9994", "0.9999"));

  EXPECT_THAT(axis("a.b=1e-4..1e-2:log").grid_values(3), ElementsAre("0.0001", "0.001", "0.01"));
  EXPECT_THAT(axis("a.b=0..1").grid_values(2), ElementsAre("0", "1"));
  EXPECT_THAT(axis("a.b=1..3:int").grid_values(9), ElementsAre("1", "2", "3"));
  EXPECT_THAT(axis("a.b=0..1").grid_values(1), ElementsAre("0.5"));
  EXPECT_THAT(axis("a.b=x,y").grid_values(7), ElementsAre("x", "y"));
}

TEST(search_space, settings_are_told_as_set_takes_them) {
  EXPECT_EQ(settings_text({}), "the recipe");
  EXPECT_EQ(settings_text({{"a.b", "1"}, {"c.d", "x"}}), "a.b=1 c.d=x");
  EXPECT_EQ(setting_number(0.002), "0.002");
  EXPECT_EQ(setting_number(64), "64");
  EXPECT_EQ(setting_number(1e-5), "1e-05");
}

}  // namespace
}  // namespace darkroom
