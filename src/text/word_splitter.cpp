#include "word_splitter.h"

#include <cstdint>
#include <string>

#include "darkroom/core/utf8.h"
#include "unicode_classes.h"

namespace darkroom {
namespace {

// The class and the size of the character at the start of `text`. REQUIRES: not empty.
CharacterClass first_class(std::string_view text, size_t& size) {
  const Utf8Character character = first_character(text);
  size = character.num_bytes;
  return character_class(character.code_point);
}

size_t contraction_size(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') {
    return 0;
  }
  for (const std::string_view ending : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    if (text.substr(1).starts_with(ending)) {
      return 1 + ending.size();
    }
  }
  return 0;
}

}  // namespace

void skip_spaces(std::string_view& text) {
  while (!text.empty()) {
    size_t size = 0;
    if (first_class(text, size) != CharacterClass::kSpace) {
      return;
    }
    text.remove_prefix(size);
  }
}

std::string_view take_word(std::string_view& text) {
  size_t end = contraction_size(text);
  if (end == 0) {
    const CharacterClass kind = first_class(text, end);
    while (kind != CharacterClass::kNumber && end < text.size()) {
      size_t size = 0;
      if (first_class(text.substr(end), size) != kind) {
        break;
      }
      end += size;
    }
  }
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

}  // namespace darkroom
