#include "darkroom/plan/sheet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "darkroom/core/check.h"
#include "plan/formula.h"

namespace darkroom {
namespace {

Quantity two_units(const std::string& name) {
  if (name == "hours") {
    return {3, Unit("h")};
  }
  return {100, Unit("s/h")};
}

TEST(Unit, is_the_same_whatever_the_order_of_its_symbols) {
  EXPECT_EQ(Unit("$/GB/months"), Unit("1/months/GB*$"));
  EXPECT_EQ(Unit("h*machines/machines"), Unit("h"));
  EXPECT_EQ(Unit("s/s"), Unit("1"));
  EXPECT_FALSE(Unit("h") == Unit("s"));
  EXPECT_EQ(Unit("W*h/kWh").to_text(), "W*h/kWh");
  EXPECT_EQ(Unit("1/h").to_text(), "1/h");
  EXPECT_EQ((Unit("h*h") * Unit("s/s")).square_root(), Unit("h"));
  EXPECT_THROW(static_cast<void>(Unit("h").square_root()), CheckFailure);
}

TEST(Formula, is_worked_out_as_written) {
  const struct {
    const char* formula;
    double value;
    const char* unit;
  } cases[] = {
      {"1 + 2 * 3", 7, "1"},          {"(1 + 2) * 3", 9, "1"},
      {"8 / 4 / 2", 1, "1"},          {"8 - 4 - 2", 2, "1"},
      {"-hours + hours", 0, "h"},     {"hours * rate", 300, "s"},
      {"ceil(hours / 2)", 2, "h"},    {"min(hours, hours / 2)", 1.5, "h"},
      {"max(hours,hours/2)", 3, "h"}, {"sqrt(hours * hours * 4)", 6, "h"},
      {"0.5e1 * hours", 15, "h"},
  };
  for (const auto& one : cases) {
    const Quantity result = evaluate_formula(one.formula, two_units);
    EXPECT_DOUBLE_EQ(result.value, one.value) << one.formula;
    EXPECT_EQ(result.unit, Unit(one.unit)) << one.formula << " " << result.unit.to_text();
  }
}

TEST(Formula, that_is_broken_is_a_bug) {
  for (const char* formula :
       {"", "1 +", "(1", "1 2", "hours + rate", "min(hours)", "min(hours, rate)", "power(1, 2)", "1 $ 2", "sqrt(hours)"}) {
    EXPECT_THROW(static_cast<void>(evaluate_formula(formula, two_units)), CheckFailure) << formula;
  }
}

TEST(Formula, names_its_inputs_once_and_in_order) {
  const std::vector<std::string> want = {"b_2", "a", "c"};
  EXPECT_EQ(names_in_formula("b_2 * (a + 1e3) / ceil(b_2) - min(c, 12)"), want);
}

TEST(Sheet, computes_what_its_formulas_say) {
  Sheet sheet;
  sheet.section("one");
  sheet.give("pictures", 7200, "pictures", "a test", "pictures");
  sheet.give("speed", 2, "pictures/s", "a test", "speed");
  EXPECT_DOUBLE_EQ(sheet.derive("time", "s", "pictures / speed", "time"), 3600);
  EXPECT_EQ(sheet.figure("time").inputs, (std::vector<std::string>{"pictures", "speed"}));
  EXPECT_EQ(sheet.figure("time").section, "one");
  EXPECT_EQ(sheet.figure("speed").source, "a test");

  const Sheet faster = sheet.with({{"speed", 4}});
  EXPECT_DOUBLE_EQ(faster.value("time"), 1800);
  EXPECT_DOUBLE_EQ(sheet.value("time"), 3600);
}

TEST(Sheet, refuses_a_wrong_unit_an_unknown_name_and_a_name_that_is_taken) {
  Sheet sheet;
  sheet.give("speed", 2, "pictures/s", "a test", "speed");
  EXPECT_THROW(sheet.derive("time", "s", "speed * 2", "time"), CheckFailure);
  EXPECT_THROW(sheet.derive("time", "s", "speeed * 2", "time"), CheckFailure);
  EXPECT_THROW(sheet.give("speed", 1, "s", "a test", "again"), CheckFailure);
  sheet.derive("double", "pictures/s", "speed * 2", "double");
  EXPECT_THROW(static_cast<void>(sheet.with({{"double", 1}})), CheckFailure);
  EXPECT_THROW(static_cast<void>(sheet.value("time")), CheckFailure);
}

}  // namespace
}  // namespace darkroom
