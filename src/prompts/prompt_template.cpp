#include "darkroom/prompts/prompt_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/utf8.h"
#include "short_name.h"

namespace darkroom {
namespace {

// The number of the character that begins at a byte.
size_t character_at(std::string_view text, size_t byte) { return decode_utf8(text.substr(0, byte)).size() + 1; }

Status lone_brace(std::string_view text, size_t at) {
  return Status::invalid_argument(
      fmt::format("has a '{0}' at character {1} that stands alone; write {0}{0} for the character itself, {{NAME}} for words of a list",
                  text[at], character_at(text, at)));
}

}  // namespace

Result<PromptTemplate> PromptTemplate::parse(std::string_view text) {
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return Status::invalid_argument(fmt::format("has a NUL at character {}, which no picture's text may hold", character_at(text, nul)));
  }
  PromptTemplate result;
  std::unordered_map<std::string_view, size_t> known;
  std::string before;
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    before.append(text.substr(at, brace - at));
    if (brace == text.size()) {
      break;
    }
    if (text.substr(brace, 2) == std::string_view(text[brace] == '{' ? "{{" : "}}")) {
      before += text[brace];
      at = brace + 2;
      continue;
    }
    const size_t begin = brace + 1;
    size_t end = begin;
    while (end < text.size() && end - begin <= kLongestName && is_of_name(text[end])) {
      ++end;
    }
    if (text[brace] == '}' || end == text.size() || end == begin || end - begin > kLongestName || text[end] != '}') {
      return lone_brace(text, brace);
    }
    const auto [name, is_new] = known.emplace(text.substr(begin, end - begin), result.names_.size());
    if (is_new) {
      result.names_.emplace_back(name->first);
    }
    result.parts_.push_back({std::exchange(before, {}), name->second});
    at = end + 1;
  }
  result.end_ = std::move(before);
  return result;
}

size_t PromptTemplate::filled_bytes(std::span<const std::string_view> words) const {
  DARKROOM_CHECK(words.size() == names_.size(), "a template was filled with another number of words:", words.size(), names_.size());
  size_t num_bytes = end_.size();
  for (const Part& part : parts_) {
    num_bytes += part.text.size() + words[part.name].size();
  }
  return num_bytes;
}

std::string PromptTemplate::fill(std::span<const std::string_view> words) const {
  std::string text;
  text.reserve(filled_bytes(words));
  for (const Part& part : parts_) {
    text += part.text;
    text += words[part.name];
  }
  return text += end_;
}

}  // namespace darkroom
