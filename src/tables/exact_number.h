#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace darkroom {

/// A decimal number of any length: 0.DIGITS * 10^exponent. One form for each value: `digits` neither begins nor ends with a
/// zero, and zero has no digits, no sign and the exponent 0.
struct Decimal {
  bool is_negative = false;
  std::string digits;
  int64_t exponent = 0;

  bool operator==(const Decimal&) const = default;
};

/// A number as tables hold it.
using Number = std::variant<int64_t, uint64_t, double, Decimal>;

/// How many bytes of `text` are a number from its start: a sign or none, digits with at most one point among them, and
/// perhaps e, a sign or none, and digits. 0: it does not start with one.
size_t decimal_length(std::string_view text);

/// What a text that is a number from start to end stands for; nothing for any other text, and for a number other than 0
/// of 10^9999 or more or of less than 10^-9999. Takes linear time.
std::optional<Decimal> parse_decimal(std::string_view text);

/// The shortest usual text; parse_decimal reads it back as the same value.
std::string print_decimal(const Decimal& value);

/// The same value, as int64_t where that holds it.
Number number_of(Decimal value);

/// The text of a cell as a number: parse_decimal, and inf, infinity and nan in any letter case with or without a sign, and
/// white space around them. Nothing where it is none of these.
std::optional<Number> parse_number_cell(std::string_view text);

/// The nearest value of the binary type, unless that is infinite, or zero for a number that is not: then the number itself.
/// (A number that is not written in binary is compared with a column of `Float` by the value that such a column would hold.)
template <typename Float>
Number nearest_or_itself(const Number& value);

/// Compares the exact values, whatever holds them. Unordered where one of them is NaN.
std::partial_ordering compare_numbers(const Number& a, const Number& b);

}  // namespace darkroom
