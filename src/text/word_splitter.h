#pragma once

#include <string_view>

namespace darkroom {

/// Skips white space at the start of clean, lower-case UTF-8 `text`.
void skip_spaces(std::string_view& text);

/// Takes the next word off `text`, which must start with one: 's 't 're 've 'm 'll 'd, a run of letters, one number, or
/// a run of anything else. (The dialects' regular expressions agree on this.)
std::string_view take_word(std::string_view& text);

}  // namespace darkroom
