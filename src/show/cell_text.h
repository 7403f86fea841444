#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace darkroom {

/// "1,234,567".
std::string grouped_digits(int64_t value);

/// "12.3 MB" (powers of 1,000).
std::string bytes_text(int64_t num_bytes);

/// "12.5 %"; "-" without a whole.
std::string percent_text(int64_t part, int64_t whole);

/// "[4, 32, 32]".
std::string shape_text(const std::vector<int64_t>& shape);

/// Characters of valid UTF-8.
int64_t count_characters(std::string_view text);

/// Columns that UTF-8 takes on a terminal: two for East Asian scripts and emoji, none for combining marks, one for each ill-formed
/// part (utf8.h), in whose place a terminal shows U+FFFD.
int64_t terminal_columns(std::string_view text);

/// The text in at most `max_columns` of a terminal; what does not fit ends in "...". REQUIRES: max_columns >= 4.
std::string fitted_text(std::string_view text, int64_t max_columns);

/// The text in pieces of at most `max_columns` of a terminal, cut at blanks where there are some; at least one piece.
/// REQUIRES: max_columns >= 2.
std::vector<std::string> wrapped_text(std::string_view text, int64_t max_columns);

/// One line of at most `max_characters`: invalid UTF-8 and control characters replaced, what does not fit ends in "...".
std::string clipped_text(std::string_view text, int64_t max_characters);

}  // namespace darkroom
