#pragma once

namespace darkroom {

inline constexpr int kGlyphWidth = 7;
inline constexpr int kGlyphHeight = 15;
/// U+0020 to U+007E, then U+00A0 to U+00FF.
inline constexpr int kNumFontGlyphs = 95 + 96;

extern const char* const kFontGlyphs[kNumFontGlyphs];

}  // namespace darkroom
