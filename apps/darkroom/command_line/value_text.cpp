#include "value_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

namespace darkroom {
namespace {

struct Unit {
  std::string_view name;
  int64_t factor;
};

constexpr std::array<Unit, 4> kCountUnits = {{{"k", 1'000}, {"K", 1'000}, {"M", 1'000'000}, {"G", 1'000'000'000}}};
constexpr int64_t kKi = 1024;
constexpr std::array<Unit, 16> kByteUnits = {{{"B", 1},
                                              {"kB", 1'000},
                                              {"KB", 1'000},
                                              {"MB", 1'000'000},
                                              {"GB", 1'000'000'000},
                                              {"TB", 1'000'000'000'000},
                                              {"k", 1'000},
                                              {"K", 1'000},
                                              {"M", 1'000'000},
                                              {"G", 1'000'000'000},
                                              {"T", 1'000'000'000'000},
                                              {"KiB", kKi},
                                              {"kiB", kKi},
                                              {"MiB", kKi* kKi},
                                              {"GiB", kKi* kKi* kKi},
                                              {"TiB", kKi* kKi* kKi* kKi}}};
constexpr WideInteger kLargest = static_cast<WideInteger>(1) << 100;  // Any larger one is out of every flag's range.

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') {
    text.remove_prefix(1);
  }
  while (!text.empty() && text.back() == ' ') {
    text.remove_suffix(1);
  }
  return text;
}

/// [-]digits[.digits][e[+-]digits], and what follows it.
struct Decimal {
  bool is_negative = false;
  std::string digits;  // Of the mantissa, without the point.
  int exponent = 0;    // Of ten; with the digits behind the point taken off.
  std::string_view rest;
};

bool scan_digits(std::string_view& text, std::string& digits) {
  const size_t before = digits.size();
  while (!text.empty() && is_digit(text.front())) {
    digits += text.front();
    text.remove_prefix(1);
  }
  return digits.size() > before;
}

bool scan_exponent(std::string_view& text, int& exponent) {
  if (text.size() < 2 || (text[0] != 'e' && text[0] != 'E') || (!is_digit(text[1]) && text[1] != '+' && text[1] != '-')) {
    return true;
  }
  const bool is_negative = text[1] == '-';
  text.remove_prefix(is_digit(text[1]) ? 1 : 2);
  std::string digits;
  if (!scan_digits(text, digits) || digits.size() > 3) {
    return false;
  }
  exponent += (is_negative ? -1 : 1) * std::stoi(digits);
  return true;
}

bool scan_decimal(std::string_view text, Decimal& decimal) {
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    decimal.is_negative = text.front() == '-';
    text.remove_prefix(1);
  }
  if (!scan_digits(text, decimal.digits)) {
    return false;
  }
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    const size_t before = decimal.digits.size();
    if (!scan_digits(text, decimal.digits)) {
      return false;
    }
    decimal.exponent -= static_cast<int>(std::min<size_t>(decimal.digits.size() - before, 1'000'000));
  }
  const bool is_good = scan_exponent(text, decimal.exponent);
  decimal.rest = text;
  return is_good;
}

enum class Scale { kWhole, kBroken, kHuge };

/// value = digits * 10^exponent * factor, exactly.
Scale scale(const Decimal& decimal, int64_t factor, WideInteger& value) {
  value = 0;
  for (const char digit : decimal.digits) {
    value = value * 10 + (digit - '0');
    if (value > kLargest) {
      return Scale::kHuge;
    }
  }
  if (__builtin_mul_overflow(value, factor, &value)) {
    return Scale::kHuge;
  }
  for (int i = 0; i < decimal.exponent && value != 0; ++i) {
    if (value > kLargest / 10) {
      return Scale::kHuge;
    }
    value *= 10;
  }
  for (int i = 0; i > decimal.exponent && value != 0; --i) {
    if (value % 10 != 0) {
      return Scale::kBroken;
    }
    value /= 10;
  }
  return value > kLargest ? Scale::kHuge : Scale::kWhole;
}

Result<WideInteger> parse_whole(std::string_view text, std::span<const Unit> units, const char* what) {
  Decimal decimal;
  if (!scan_decimal(trimmed(text), decimal)) {
    return Status::invalid_argument(fmt::format("must be {}, got:", what), quote_value(text));
  }
  const std::string_view name = trimmed(decimal.rest);
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& candidate) { return candidate.name == name; });
  if (!name.empty() && unit == units.end()) {
    return Status::invalid_argument(fmt::format("must be {}, got:", what), quote_value(text));
  }
  WideInteger value = 0;
  switch (scale(decimal, name.empty() ? 1 : unit->factor, value)) {
    case Scale::kBroken:
      return Status::invalid_argument(fmt::format("must be {}, without a fraction, got:", what), quote_value(text));
    case Scale::kHuge:
      return Status::invalid_argument(fmt::format("must be {}, and not so large, got:", what), quote_value(text));
    case Scale::kWhole:
      break;
  }
  return decimal.is_negative ? -value : value;
}

/// A finite number and what follows it.
bool scan_number(std::string_view text, double& value, std::string_view& rest) {
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  rest = trimmed(text.substr(static_cast<size_t>(end - text.data())));
  return error == std::errc() && std::isfinite(value);
}

struct TimeUnit {
  std::string_view name;
  double seconds;
};
constexpr std::array<TimeUnit, 5> kTimeUnits = {{{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}}};

Result<double> parse_time(std::string_view text, double bare_seconds, const char* what) {
  double value = 0;
  std::string_view name;
  const bool is_number = scan_number(trimmed(text), value, name);
  const auto* const unit =
      std::find_if(kTimeUnits.begin(), kTimeUnits.end(), [&](const TimeUnit& candidate) { return candidate.name == name; });
  if (!is_number || (!name.empty() && unit == kTimeUnits.end())) {
    return Status::invalid_argument(fmt::format("must be {}, got:", what), quote_value(text));
  }
  return value * (name.empty() ? 1.0 : unit->seconds / bare_seconds);
}

}  // namespace

Result<WideInteger> parse_count(std::string_view text) { return parse_whole(text, kCountUnits, "a whole number such as 1000, 10k or 1e6"); }

Result<WideInteger> parse_bytes(std::string_view text) { return parse_whole(text, kByteUnits, "a size such as 50MB, 64KiB or 100e6"); }

Result<double> parse_number(std::string_view text) {
  double value = 0;
  std::string_view rest;
  if (!scan_number(trimmed(text), value, rest) || !rest.empty()) {
    return Status::invalid_argument("must be a number, got:", quote_value(text));
  }
  return value;
}

Result<double> parse_percent(std::string_view text) {
  double value = 0;
  std::string_view rest;
  if (!scan_number(trimmed(text), value, rest) || !(rest.empty() || rest == "%")) {
    return Status::invalid_argument("must be a percentage such as 60 or 60%, got:", quote_value(text));
  }
  return value;
}

Result<double> parse_seconds(std::string_view text) { return parse_time(text, 1, "a time such as 20, 500ms or 2min"); }

Result<double> parse_minutes(std::string_view text) { return parse_time(text, 60, "minutes such as 5.5, or a time such as 90s"); }

std::string format_count(WideInteger value) {
  if (value < 0) {
    return "-" + format_count(-value);
  }
  return fmt::format("{}", static_cast<unsigned __int128>(value));
}

std::string format_bytes(WideInteger value) {
  constexpr std::array<std::string_view, 5> kDecimal = {"B", "kB", "MB", "GB", "TB"};
  constexpr std::array<std::string_view, 5> kBinary = {"B", "KiB", "MiB", "GiB", "TiB"};
  const auto with_unit = [&](int64_t step, std::span<const std::string_view> names, size_t& index) {
    WideInteger scaled = value;
    for (index = 0; index + 1 < names.size() && scaled != 0 && scaled % step == 0; ++index) {
      scaled /= step;
    }
    return format_count(scaled) + " " + std::string(names[index]);
  };
  size_t decimal_index = 0;
  size_t binary_index = 0;
  std::string decimal = with_unit(1000, kDecimal, decimal_index);
  std::string binary = with_unit(kKi, kBinary, binary_index);
  return decimal_index >= binary_index ? decimal : binary;
}

std::string format_number(double value) { return fmt::format("{}", value); }

std::string quote_value(std::string_view text) {
  constexpr size_t kShown = 100;
  if (text.empty()) {
    return "''";
  }
  std::string shown(text.substr(0, kShown));
  if (!std::all_of(shown.begin(), shown.end(), [](char c) { return c >= ' ' && c <= '~'; })) {
    shown = nlohmann::json(shown).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    shown = shown.substr(1, shown.size() - 2);
  }
  return text.size() > kShown ? fmt::format("{}... ({} bytes)", shown, text.size()) : shown;
}

}  // namespace darkroom
