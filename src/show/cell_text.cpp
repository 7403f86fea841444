#include "cell_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>

#include "darkroom/data/row_columns.h"

namespace darkroom {
namespace {

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

}  // namespace

std::string grouped_digits(int64_t value) {
  const std::string digits = fmt::format("{}", value);
  const size_t first = value < 0 ? 1 : 0;
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) {
      grouped += ',';
    }
    grouped += digits[i];
  }
  return grouped;
}

std::string bytes_text(int64_t num_bytes) {
  constexpr std::array<const char*, 5> kUnits = {"kB", "MB", "GB", "TB", "PB"};
  if (num_bytes < 1000) {
    return fmt::format("{} bytes", num_bytes);
  }
  double value = static_cast<double>(num_bytes) / 1000;
  size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < kUnits.size(); ++unit) {
    value /= 1000;
  }
  return fmt::format("{:.1f} {}", value, kUnits.at(unit));
}

std::string percent_text(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t count_characters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) {
    count += starts_character(c) ? 1 : 0;
  }
  return count;
}

std::string clipped_text(std::string_view text, int64_t max_characters) {
  // Four bytes a character are enough of a text that may be megabytes long.
  const std::string_view beginning = text.substr(0, static_cast<size_t>(max_characters + 1) * 4);
  const std::string valid = replace_invalid_utf8(beginning).first;
  const bool fits = count_characters(valid) <= max_characters;
  const int64_t num_kept = fits ? max_characters : max_characters - 3;
  std::string line;
  int64_t count = 0;
  for (const char c : valid) {
    count += starts_character(c) ? 1 : 0;
    if (count > num_kept) {
      break;
    }
    line += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  }
  line += fits ? "" : "...";
  return line;
}

}  // namespace darkroom
