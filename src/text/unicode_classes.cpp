#include "unicode_classes.h"

#include "unicode_properties.h"

namespace darkroom {

CharacterClass find_character_class(char32_t code_point) { return static_cast<CharacterClass>(character_properties(code_point) & 3); }

bool is_decimal_digit(char32_t code_point) { return (character_properties(code_point) & kDecimal) != 0; }

bool is_new_character(char32_t code_point) { return (character_properties(code_point) & kNew) != 0; }

}  // namespace darkroom
