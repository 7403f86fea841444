#include "darkroom/core/nested_text.h"

#include <algorithm>

namespace darkroom {

namespace {

/// How long the TOML string is that `text` begins with. One of a single line ends with its line at the latest.
size_t toml_string_size(std::string_view text) {
  const char quote = text.front();
  const std::string_view mark = quote == '"' ? R"(""")" : "'''";
  const bool has_lines = text.starts_with(mark);
  for (size_t i = has_lines ? mark.size() : 1; i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;  // What is escaped ends nothing.
    } else if (has_lines && text.substr(i).starts_with(mark)) {
      // One or two more quotes belong to the text, and the mark stands behind them.
      size_t end = i + mark.size();
      while (end < std::min(i + mark.size() + 2, text.size()) && text[end] == quote) {
        ++end;
      }
      return end;
    } else if (!has_lines && (text[i] == quote || text[i] == '\n')) {
      return text[i] == quote ? i + 1 : i;
    }
  }
  return text.size();
}

}  // namespace

bool json_nests_deeper(std::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (in_string) {
      i += letter == '\\' ? 1 : 0;  // An escaped quote ends no string.
      in_string = letter != '"';
    } else if (letter == '"') {
      in_string = true;
    } else if (letter == '[' || letter == '{') {
      if (++depth > max_depth) {
        return true;
      }
    } else if (letter == ']' || letter == '}') {
      --depth;
    }
  }
  return false;
}

Status check_toml_keys(std::string_view text) {
  int num_parts = 1;
  for (size_t i = 0; i < text.size();) {
    const char letter = text[i];
    if (letter == '"' || letter == '\'') {
      i += toml_string_size(text.substr(i));
      continue;
    }
    if (letter == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    num_parts += letter == '.' ? 1 : 0;
    if (num_parts > kMaxTomlKeyParts) {
      const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n') + 1;
      return Status::invalid_argument(fmt::format("line {}: a key has more than {} parts", line, kMaxTomlKeyParts));
    }
    if (std::string_view("\n=,[]{}").find(letter) != std::string_view::npos) {
      num_parts = 1;  // Keys end here, and values, whose points count as if they were keys'.
    }
    ++i;
  }
  return Status::ok();
}

}  // namespace darkroom
