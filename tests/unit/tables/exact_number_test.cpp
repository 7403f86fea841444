#include "tables/exact_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace darkroom {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Number decimal(const std::string& text) { return parse_decimal(text).value(); }

TEST(exact_number, orders_values_whatever_holds_them) {
  // Each line holds equal values, and less than the next one.
  const std::vector<std::vector<Number>> ascending = {
      {-kInfinity},
      {decimal("-1e400")},
      {-1e300},
      {decimal("-9223372036854775808.5")},
      {std::numeric_limits<int64_t>::min(), -9223372036854775808.0, decimal("-9223372036854775808")},
      {decimal("-9223372036854775807.5")},
      {std::numeric_limits<int64_t>::min() + 1},
      {int64_t{-2}, -2.0, decimal("-2")},
      {-1.5, decimal("-1.5")},
      {int64_t{-1}, -1.0, decimal("-1.0")},
      {-0.5, decimal("-.5")},
      {decimal("-1e-400")},
      {int64_t{0}, uint64_t{0}, 0.0, -0.0, decimal("0"), decimal("-0.000")},
      {decimal("1e-400")},
      {std::numeric_limits<double>::denorm_min()},
      {decimal("0.1")},
      {0.1, decimal("0.1000000000000000055511151231257827021181583404541015625")},
      {decimal("0.10000000000000000556")},
      {0.5, decimal("5e-1")},
      {int64_t{1}, uint64_t{1}, 1.0, decimal("1")},
      {1.5, decimal("1.50")},
      {int64_t{9007199254740992}, 9007199254740992.0},
      {int64_t{9007199254740993}, uint64_t{9007199254740993}, decimal("9007199254740993")},
      {decimal("9007199254740993.5")},
      {9007199254740994.0},
      {std::numeric_limits<int64_t>::max(), uint64_t{9223372036854775807u}, decimal("9223372036854775807")},
      {uint64_t{9223372036854775808u}, 9223372036854775808.0},
      {std::numeric_limits<uint64_t>::max(), decimal("18446744073709551615")},
      {18446744073709551616.0, decimal("18446744073709551616")},
      {1e300},
      {decimal("1e400")},
      {kInfinity},
  };
  for (size_t i = 0; i < ascending.size(); ++i) {
    for (size_t j = 0; j < ascending.size(); ++j) {
      for (const Number& a : ascending[i]) {
        for (const Number& b : ascending[j]) {
          EXPECT_TRUE(compare_numbers(a, b) == (i <=> j)) << i << " " << a.index() << ", " << j << " " << b.index();
        }
      }
    }
  }
}

TEST(exact_number, nan_has_no_order) {
  const Number nan = std::numeric_limits<double>::quiet_NaN();
  for (const Number& other : {nan, Number(int64_t{0}), Number(uint64_t{1} << 63), Number(1.0), decimal("0.1")}) {
    EXPECT_TRUE(compare_numbers(nan, other) == std::partial_ordering::unordered);
    EXPECT_TRUE(compare_numbers(other, nan) == std::partial_ordering::unordered);
  }
}

TEST(exact_number, reads_the_cells_of_text_tables) {
  const auto is = [](std::string_view text, const Number& want) {
    const auto number = parse_number_cell(text);
    return number && compare_numbers(*number, want) == 0;
  };
  EXPECT_TRUE(is("12", int64_t{12}));
  EXPECT_TRUE(is(" \t-1.50\r\n", -1.5));
  EXPECT_TRUE(is("+1e2", int64_t{100}));
  EXPECT_TRUE(is("Infinity", kInfinity));
  EXPECT_TRUE(is("-INF", -kInfinity));
  EXPECT_TRUE(is(std::string(100'000, '0') + "7", int64_t{7}));
  EXPECT_TRUE(std::isnan(std::get<double>(parse_number_cell("NaN").value())));
  for (const char* text : {"", " ", "-", ".", "+.", "e5", "1e", "1e+", "1 2", "1,000", "0x10", "1f", "--1", "na", "nann", "infinit",
                           "1e10000", "\xEF\xBC\x91"}) {
    EXPECT_FALSE(parse_number_cell(text).has_value()) << text;
  }
  EXPECT_FALSE(parse_number_cell(std::string(100'000, '7')).has_value());
  EXPECT_FALSE(parse_number_cell(std::string_view("1\0", 2)).has_value());
}

TEST(exact_number, a_small_whole_number_is_an_integer) {
  EXPECT_TRUE(std::holds_alternative<int64_t>(number_of(parse_decimal("9223372036854775807").value())));
  EXPECT_TRUE(std::holds_alternative<int64_t>(number_of(parse_decimal("-9223372036854775808").value())));
  EXPECT_TRUE(std::holds_alternative<int64_t>(number_of(parse_decimal("1e18").value())));
  EXPECT_TRUE(std::holds_alternative<Decimal>(number_of(parse_decimal("9223372036854775808").value())));
  EXPECT_TRUE(std::holds_alternative<Decimal>(number_of(parse_decimal("0.5").value())));
  EXPECT_EQ(std::get<int64_t>(number_of(parse_decimal("0").value())), 0);
}

TEST(exact_number, is_rounded_to_binary_unless_that_loses_it) {
  EXPECT_EQ(std::get<double>(nearest_or_itself<double>(decimal("0.1"))), 0.1);
  EXPECT_EQ(std::get<double>(nearest_or_itself<float>(decimal("0.1"))), double{0.1F});
  EXPECT_EQ(std::get<double>(nearest_or_itself<float>(int64_t{16777217})), 16777216.0);
  EXPECT_EQ(std::get<double>(nearest_or_itself<float>(int64_t{0})), 0.0);
  EXPECT_TRUE(std::holds_alternative<Decimal>(nearest_or_itself<double>(decimal("1e309"))));
  EXPECT_TRUE(std::holds_alternative<Decimal>(nearest_or_itself<float>(decimal("1e39"))));
  EXPECT_TRUE(std::holds_alternative<Decimal>(nearest_or_itself<float>(decimal("1e-50"))));
  EXPECT_TRUE(std::holds_alternative<double>(nearest_or_itself<double>(decimal("1e-50"))));
}

}  // namespace
}  // namespace darkroom
