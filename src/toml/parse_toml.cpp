#include "darkroom/toml/parse_toml.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

struct Reason {
  std::string_view words;  // In toml++'s own sentence; it has no codes.
  std::string_view said;   // {} is what the file says there.
};

// The first that fits holds. What stands in single quotes in toml++'s sentence, or behind its word "saw", is from the file.
constexpr Reason kReasons[] = {
    {"invalid utf-8", "these bytes are no UTF-8"},
    {"end-of-file", "the file ends before this is complete"},
    {"cannot redefine", "{} is defined already"},
    {"cannot insert", "{} is defined already"},
    {"dangling comma", "there is a comma before the closing }}"},
    {"leading zeroes", "a number must not begin with 0"},
    {"underscores", "in a number, underscores stand between two digits"},
    {"not representable", "the number {} does not fit into 64 bits"},
    {"escape sequence", "there is no escape {}; write \\\\ for a backslash, or the text in single quotes"},
    {"surrogate", "half of a surrogate pair is no character"},
    {"10FFFF", "there is no character above U+10FFFF"},
    {"control character", "a text within one line ends with its quote, and control characters are written as escapes"},
    {"multi-line strings", "a key is a word or a text within one line"},
    {"blank bare keys", "the brackets of a table want a name"},
    {"nested value depth", "values lie too deep in each other"},
    {"(inclusive)", "no date and no time has {} there"},
    {"comment or whitespace", "{} stands behind what has ended; each setting has a line of its own"},
    {"expected '='", "want KEY = VALUE, got {}"},
    {"could not determine value type", "this is no value; texts stand in quotes"},
    {"could not be interpreted", "{} is no value; texts stand in quotes"},
    {", saw ", "{} cannot stand here"},
};

// 'a' of "cannot redefine existing integer 'a'", '\n' and 13 of "expected ..., saw '\n'" and "..., saw 13".
std::string quoted_part(std::string_view sentence) {
  constexpr std::string_view kSaw = ", saw ";
  if (const size_t saw = sentence.find(kSaw); saw != sentence.npos) {
    const std::string_view seen = sentence.substr(saw + kSaw.size());
    return std::string(seen.substr(0, seen.find(" (")));
  }
  const size_t first = sentence.find('\''), last = sentence.rfind('\'');
  return std::string(first < last ? sentence.substr(first, last - first + 1) : "what is here");
}

std::string sentence_of(std::string_view theirs) {
  for (const auto& [words, said] : kReasons) {
    if (theirs.find(words) != theirs.npos) {
      return fmt::format(fmt::runtime(said), quoted_part(theirs));
    }
  }
  return "what stands here cannot be read";
}

}  // namespace

Result<toml::table> parse_toml(std::string_view text, std::string_view name) {
  DARKROOM_RETURN_IF_ERROR(check_toml_keys(text).with_context(name));
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const toml::source_position place = error.source().begin;
    return Status::invalid_argument(
        fmt::format("{}, line {}, column {}: this is no TOML: {}", name, place.line, place.column, sentence_of(error.description())));
  }
}

}  // namespace darkroom
