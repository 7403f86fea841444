#include "darkroom/nn/config_file.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "darkroom/core/nested_text.h"

namespace darkroom {

namespace {

// `text` with null for each bare word that stands for a number that is not finite. Inside strings nothing changes.
std::string without_non_finite_words(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords = {"-Infinity", "Infinity", "NaN"};
  std::string result;
  result.reserve(text.size());
  bool in_string = false;
  while (!text.empty()) {
    const auto word = std::ranges::find_if(kWords, [&](std::string_view candidate) { return text.starts_with(candidate); });
    if (!in_string && word != kWords.end()) {
      result += "null";
      text.remove_prefix(word->size());
      continue;
    }
    const size_t taken = in_string && text.front() == '\\' && text.size() > 1 ? 2 : 1;  // An escaped quote ends no string.
    in_string = taken == 1 && text.front() == '"' ? !in_string : in_string;
    result += text.substr(0, taken);
    text.remove_prefix(taken);
  }
  return result;
}

}  // namespace

Result<nlohmann::json> read_config_file(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  auto parsed = parse_json(without_non_finite_words(text));
  if (!parsed.is_object()) {
    return Status::corrupt_data("not a JSON object (file):", path);
  }
  return parsed;
}

}  // namespace darkroom
