#pragma once

namespace darkroom {

/// U+0080 to U+009F.
constexpr bool is_c1_control(char32_t code_point) { return code_point >= 0x80 && code_point <= 0x9F; }

/// What the byte of this number is in Windows-1252; the control itself where it has no character there.
/// REQUIRES: is_c1_control.
constexpr char32_t windows_1252_of_c1(char32_t code_point) {
  constexpr char32_t kCharacters[] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
                                      0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
                                      0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
  return kCharacters[code_point - 0x80];
}

}  // namespace darkroom
