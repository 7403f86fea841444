#include "cell_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "darkroom/core/printable.h"
#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

struct CodePoints {
  uint32_t first;
  uint32_t last;
};

// Blocks that terminals draw two columns wide, and marks that they draw over the character before. Only looks depend on it.
constexpr std::array<CodePoints, 14> kWide = {{{0x1100, 0x115F},
                                               {0x2E80, 0x303E},
                                               {0x3041, 0xA4CF},
                                               {0xA960, 0xA97F},
                                               {0xAC00, 0xD7A3},
                                               {0xF900, 0xFAFF},
                                               {0xFE30, 0xFE6F},
                                               {0xFF00, 0xFF60},
                                               {0xFFE0, 0xFFE6},
                                               {0x1F300, 0x1F64F},
                                               {0x1F680, 0x1F6FF},
                                               {0x1F900, 0x1F9FF},
                                               {0x1FA70, 0x1FAFF},
                                               {0x20000, 0x3FFFD}}};
constexpr std::array<CodePoints, 6> kNoColumn = {
    {{0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0x1F3FB, 0x1F3FF}}};

template <size_t N>
bool is_among(uint32_t code_point, const std::array<CodePoints, N>& blocks) {
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](const CodePoints& block) { return code_point >= block.first && code_point <= block.last; });
}

// The character that begins at `at`: its bytes and columns.
struct Character {
  size_t num_bytes;
  int64_t columns;
};

Character character_at(std::string_view text, size_t at) {
  const Utf8Character character = first_character(text.substr(at));
  const uint32_t code_point = character.code_point;
  return {character.num_bytes, is_among(code_point, kNoColumn) ? 0 : is_among(code_point, kWide) ? 2 : 1};
}

// Bytes of the longest beginning that takes at most `max_columns`.
size_t fitting_bytes(std::string_view text, int64_t max_columns) {
  size_t at = 0;
  for (int64_t columns = 0; at < text.size();) {
    const Character next = character_at(text, at);
    columns += next.columns;
    if (columns > max_columns) {
      break;
    }
    at += next.num_bytes;
  }
  return at;
}

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

int64_t terminal_columns(std::string_view text) {
  int64_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const Character next = character_at(text, at);
    columns += next.columns;
    at += next.num_bytes;
  }
  return columns;
}

std::string fitted_text(std::string_view text, int64_t max_columns) {
  if (terminal_columns(text) <= max_columns) {
    return std::string(text);
  }
  return std::string(text.substr(0, fitting_bytes(text, max_columns - 3))) + "...";
}

std::vector<std::string> wrapped_text(std::string_view text, int64_t max_columns) {
  std::vector<std::string> pieces;
  do {
    size_t num_bytes = fitting_bytes(text, max_columns);
    const size_t blank = num_bytes < text.size() ? text.substr(0, num_bytes + 1).rfind(' ') : std::string_view::npos;
    num_bytes = blank != std::string_view::npos && blank > 0 ? blank : num_bytes;
    pieces.emplace_back(text.substr(0, num_bytes));
    text.remove_prefix(num_bytes);
    text.remove_prefix(blank != std::string_view::npos && blank > 0 ? 1 : 0);
  } while (!text.empty());
  return pieces;
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
    line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  line += fits ? "" : "...";
  return printable(line);
}

}  // namespace darkroom
