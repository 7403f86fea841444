#include "exact_number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace darkroom {

namespace {

constexpr int64_t kMostExponent = 9999;
constexpr int64_t kEndlessExponent = int64_t{1} << 40;  // No text of ours has as many digits to make up for it.

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool is_sign(char letter) { return letter == '+' || letter == '-'; }

size_t count_digits(std::string_view text) {
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
}

/// Bytes of an exponent at the start of `text`; 0 where there is none.
size_t exponent_length(std::string_view text) {
  if (text.empty() || (text[0] != 'e' && text[0] != 'E')) {
    return 0;
  }
  const size_t sign = text.size() > 1 && is_sign(text[1]) ? 1 : 0;
  const size_t num_digits = count_digits(text.substr(1 + sign));
  return num_digits == 0 ? 0 : 1 + sign + num_digits;
}

/// `text` is e, a sign or none, and digits.
int64_t parse_exponent(std::string_view text) {
  text.remove_prefix(1);
  const bool is_negative = text[0] == '-';
  text.remove_prefix(is_sign(text[0]) ? 1 : 0);
  int64_t value = 0;
  for (const char digit : text) {
    value = std::min(kEndlessExponent, value * 10 + (digit - '0'));
  }
  return is_negative ? -value : value;
}

/// The normal form of 0.DIGITS * 10^exponent.
Decimal normal_decimal(bool is_negative, std::string digits, int64_t exponent) {
  const size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) {
    return {};
  }
  digits.erase(digits.find_last_not_of('0') + 1);
  digits.erase(0, first);
  return {is_negative, std::move(digits), exponent - static_cast<int64_t>(first)};
}

Decimal decimal_of(uint64_t magnitude, bool is_negative) {
  std::string digits = std::to_string(magnitude);
  const auto exponent = static_cast<int64_t>(digits.size());
  return normal_decimal(is_negative, std::move(digits), exponent);
}
Decimal decimal_of(int64_t value) {
  return decimal_of(value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value), value < 0);
}
Decimal decimal_of(uint64_t value) { return decimal_of(value, false); }

/// All digits of a finite double: at most 767 of them are not zeros behind the last.
Decimal decimal_of(double value) {
  std::array<char, 800> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific, 766).ptr;
  return parse_decimal({text.data(), static_cast<size_t>(end - text.data())}).value();
}

std::strong_ordering compare_decimals(const Decimal& a, const Decimal& b) {
  const int sign_a = a.digits.empty() ? 0 : a.is_negative ? -1 : 1;
  const int sign_b = b.digits.empty() ? 0 : b.is_negative ? -1 : 1;
  if (sign_a != sign_b) {
    return sign_a <=> sign_b;
  }
  const Decimal& smaller = sign_a < 0 ? b : a;  // Of two negative numbers the one of the greater magnitude is less.
  const Decimal& larger = sign_a < 0 ? a : b;
  if (smaller.exponent != larger.exponent) {
    return smaller.exponent <=> larger.exponent;
  }
  return smaller.digits <=> larger.digits;
}

template <typename Integer>
std::partial_ordering compare_with_double(Integer a, double b) {
  // Both ends are powers of two, so doubles hold them.
  constexpr double kLeast = static_cast<double>(std::numeric_limits<Integer>::min());
  const double beyond = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  if (std::isnan(b)) {
    return std::partial_ordering::unordered;
  }
  if (b >= beyond) {
    return std::partial_ordering::less;
  }
  if (b < kLeast) {
    return std::partial_ordering::greater;
  }
  const double whole = std::trunc(b);
  const auto same = static_cast<Integer>(whole);
  return a != same ? std::partial_ordering(a <=> same) : 0.0 <=> b - whole;
}

std::partial_ordering reversed(std::partial_ordering order) { return 0 <=> order; }

struct CompareValues {
  std::partial_ordering operator()(int64_t a, int64_t b) const { return a <=> b; }
  std::partial_ordering operator()(uint64_t a, uint64_t b) const { return a <=> b; }
  std::partial_ordering operator()(double a, double b) const { return a <=> b; }
  std::partial_ordering operator()(const Decimal& a, const Decimal& b) const { return compare_decimals(a, b); }
  std::partial_ordering operator()(int64_t a, uint64_t b) const {
    return a < 0 ? std::partial_ordering::less : std::partial_ordering(static_cast<uint64_t>(a) <=> b);
  }
  std::partial_ordering operator()(int64_t a, double b) const { return compare_with_double(a, b); }
  std::partial_ordering operator()(uint64_t a, double b) const { return compare_with_double(a, b); }
  std::partial_ordering operator()(int64_t a, const Decimal& b) const { return compare_decimals(decimal_of(a), b); }
  std::partial_ordering operator()(uint64_t a, const Decimal& b) const { return compare_decimals(decimal_of(a), b); }
  std::partial_ordering operator()(double a, const Decimal& b) const {
    return std::isfinite(a) ? compare_decimals(decimal_of(a), b) : a <=> 0.0;  // An infinity's sign decides.
  }
  std::partial_ordering operator()(uint64_t a, int64_t b) const { return reversed((*this)(b, a)); }
  std::partial_ordering operator()(double a, int64_t b) const { return reversed((*this)(b, a)); }
  std::partial_ordering operator()(double a, uint64_t b) const { return reversed((*this)(b, a)); }
  std::partial_ordering operator()(const Decimal& a, int64_t b) const { return reversed((*this)(b, a)); }
  std::partial_ordering operator()(const Decimal& a, uint64_t b) const { return reversed((*this)(b, a)); }
  std::partial_ordering operator()(const Decimal& a, double b) const { return reversed((*this)(b, a)); }
};

bool same_letters(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char a, char b) { return (a | 0x20) == b; });
}

}  // namespace

size_t decimal_length(std::string_view text) {
  const size_t sign = !text.empty() && is_sign(text[0]) ? 1 : 0;
  const size_t num_whole = count_digits(text.substr(sign));
  size_t length = sign + num_whole;
  size_t num_fraction = 0;
  if (length < text.size() && text[length] == '.') {
    num_fraction = count_digits(text.substr(length + 1));
    length += 1 + num_fraction;
  }
  return num_whole + num_fraction == 0 ? 0 : length + exponent_length(text.substr(length));
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  if (text.empty() || decimal_length(text) != text.size()) {
    return std::nullopt;
  }
  const bool is_negative = text[0] == '-';
  text.remove_prefix(is_sign(text[0]) ? 1 : 0);
  const size_t mantissa = std::min(text.find_first_of("eE"), text.size());
  const int64_t shift = mantissa < text.size() ? parse_exponent(text.substr(mantissa)) : 0;
  const size_t point = std::min(text.substr(0, mantissa).find('.'), mantissa);
  std::string digits(text.substr(0, point));
  digits += text.substr(std::min(point + 1, mantissa), mantissa - std::min(point + 1, mantissa));
  Decimal value = normal_decimal(is_negative, std::move(digits), static_cast<int64_t>(point) + shift);
  // The first digit stands for 10^(exponent - 1).
  return value.exponent - 1 < kMostExponent && value.exponent - 1 >= -kMostExponent ? std::optional(std::move(value)) : std::nullopt;
}

std::string print_decimal(const Decimal& value) {
  constexpr int64_t kMostZerosInFront = 5;
  constexpr int64_t kMostWholeDigits = 21;
  const auto num_digits = static_cast<int64_t>(value.digits.size());
  if (num_digits == 0) {
    return "0";
  }
  std::string text = value.is_negative ? "-" : "";
  if (value.exponent > kMostWholeDigits || value.exponent < -kMostZerosInFront) {
    text += value.digits[0];
    text += num_digits > 1 ? "." + value.digits.substr(1) : "";
    return text + "e" + std::to_string(value.exponent - 1);
  }
  if (value.exponent <= 0) {
    return text + "0." + std::string(static_cast<size_t>(-value.exponent), '0') + value.digits;
  }
  if (value.exponent >= num_digits) {
    return text + value.digits + std::string(static_cast<size_t>(value.exponent - num_digits), '0');
  }
  return text + value.digits.substr(0, static_cast<size_t>(value.exponent)) + "." +
         value.digits.substr(static_cast<size_t>(value.exponent));
}

Number number_of(Decimal value) {
  constexpr int64_t kDigitsOfInt64 = 19;
  if (value.exponent >= static_cast<int64_t>(value.digits.size()) && value.exponent <= kDigitsOfInt64) {
    const std::string text = print_decimal(value);
    int64_t whole = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), whole).ec == std::errc()) {
      return whole;
    }
  }
  return value;
}

std::optional<Number> parse_number_cell(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\n\r\f\v";
  text.remove_prefix(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
  text.remove_suffix(text.size() - (text.find_last_not_of(kWhiteSpace) + 1));
  if (std::optional<Decimal> value = parse_decimal(text)) {
    return number_of(*std::move(value));
  }
  const bool has_sign = !text.empty() && is_sign(text[0]);
  const std::string_view word = text.substr(has_sign ? 1 : 0);
  if (same_letters(word, "nan")) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (same_letters(word, "inf") || same_letters(word, "infinity")) {
    return text[0] == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  }
  return std::nullopt;
}

template <typename Float>
Number nearest_or_itself(const Number& value) {
  std::string text;
  if (const auto* decimal = std::get_if<Decimal>(&value)) {
    text = print_decimal(*decimal);
  } else if (const auto* whole = std::get_if<int64_t>(&value)) {
    text = std::to_string(*whole);
  } else {
    return value;
  }
  Float nearest = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), nearest);
  if (result.ec != std::errc() || (nearest == 0 && text != "0")) {
    return value;
  }
  return static_cast<double>(nearest);
}

template Number nearest_or_itself<float>(const Number& value);
template Number nearest_or_itself<double>(const Number& value);

std::partial_ordering compare_numbers(const Number& a, const Number& b) { return std::visit(CompareValues{}, a, b); }

}  // namespace darkroom
