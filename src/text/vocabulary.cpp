#include "vocabulary.h"

#include "darkroom/core/utf8.h"

namespace darkroom {

Result<Vocabulary> Vocabulary::create(std::vector<std::string> tokens, std::vector<std::string> merges) {
  Vocabulary vocabulary;
  vocabulary.ids_.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!vocabulary.ids_.emplace(tokens[id], static_cast<int32_t>(id)).second) {
      return Status::corrupt_data("reading a vocabulary: a token has two ids (token, second id):", tokens[id], id);
    }
  }
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      return Status::corrupt_data("reading a vocabulary: a merge is not two tokens with a space between:", merge);
    }
    const auto left = vocabulary.find(std::string_view(merge).substr(0, space));
    const auto right = vocabulary.find(std::string_view(merge).substr(space + 1));
    const auto merged = vocabulary.find(merge.substr(0, space) + merge.substr(space + 1));
    if (!left || !right || !merged) {
      return Status::corrupt_data("reading a vocabulary: a merge names or makes an unknown token:", merge);
    }
    vocabulary.merge_ids_.push_back({*left, *right, *merged});
  }
  vocabulary.tokens_ = std::move(tokens);
  vocabulary.merges_ = std::move(merges);
  return vocabulary;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) {
    return std::nullopt;
  }
  return found->second;
}

const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> table;
    char32_t next = 256;
    for (char32_t byte = 0; byte < table.size(); ++byte) {
      const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
      append_utf8(table[byte], prints ? byte : next++);
    }
    return table;
  }();
  return characters;
}

std::optional<std::string> token_bytes(std::string_view token) {
  static const std::unordered_map<char32_t, char> bytes = [] {
    std::unordered_map<char32_t, char> table;
    for (size_t byte = 0; byte < 256; ++byte) {
      table.emplace(first_character(byte_characters()[byte]).code_point, static_cast<char>(byte));
    }
    return table;
  }();
  std::string out;
  for (const char32_t c : decode_utf8(token)) {
    const auto found = bytes.find(c);
    if (found == bytes.end()) {
      return std::nullopt;
    }
    out += found->second;
  }
  return out;
}

}  // namespace darkroom
