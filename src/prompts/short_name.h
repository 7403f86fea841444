#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace darkroom {

/// Of lists and jobs, which stand in prompts and in paths.
inline constexpr size_t kLongestName = 64;

inline bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/// 1 to kLongestName letters and digits of ASCII, - and _.
inline bool is_short_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, is_of_name);
}

/// The same, beginning with a letter or digit: the name of a folder that no program takes for a flag or for one of ours.
inline bool is_job_name(std::string_view text) { return is_short_name(text) && text.front() != '_' && text.front() != '-'; }

}  // namespace darkroom
