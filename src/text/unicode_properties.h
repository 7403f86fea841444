#pragma once

#include <cstdint>

namespace darkroom {

// Bits of a character's properties, as tools/tables/make_unicode_tables.py numbers them; below them is its CharacterClass.
inline constexpr uint16_t kInUnicode9 = 0x4;
inline constexpr uint16_t kNormal = 0x8;          ///< Stays as it is in NFC, whatever stands before it.
inline constexpr uint16_t kCased = 0x10;          ///< The property Cased.
inline constexpr uint16_t kCaseIgnorable = 0x20;  ///< The property Case_Ignorable.
inline constexpr uint16_t kDecimal = 0x40;        ///< Category Nd.
inline constexpr uint16_t kNew = 0x80;            ///< As is_new_character says.
inline constexpr uint16_t kHasLower = 0x100;      ///< Has a lower case.
inline constexpr uint16_t kHasDecomposition = 0x200;
inline constexpr uint16_t kIsMark = 0x400;  ///< Has a combining class.

/// The properties of any code point up to U+10FFFF but surrogates: Unicode 16 for the class, Unicode 15.0 for the rest.
uint16_t character_properties(char32_t code_point);

}  // namespace darkroom
