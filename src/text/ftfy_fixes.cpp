#include "ftfy_fixes.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "html_entities.h"
#include "mojibake.h"
#include "utf32.h"

namespace darkroom {
namespace {

// Windows-1252 for U+0080..U+009F; where it has no character the control stays.
constexpr char32_t kWindows1252[] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
                                     0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
                                     0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

struct Ligature {
  char32_t ligature;
  std::u32string_view letters;
};
constexpr Ligature kLigatures[] = {
    {0x132, U"IJ"},   {0x133, U"ij"},   {0x149, U"\u02BCn"},  {0x1C4, U"D\u017D"}, {0x1C5, U"D\u017E"}, {0x1C6, U"d\u017E"},
    {0x1C7, U"LJ"},   {0x1C8, U"Lj"},   {0x1C9, U"lj"},       {0x1CA, U"NJ"},      {0x1CB, U"Nj"},      {0x1CC, U"nj"},
    {0x1F1, U"DZ"},   {0x1F2, U"Dz"},   {0x1F3, U"dz"},       {0xFB00, U"ff"},     {0xFB01, U"fi"},     {0xFB02, U"fl"},
    {0xFB03, U"ffi"}, {0xFB04, U"ffl"}, {0xFB05, U"\u017Ft"}, {0xFB06, U"st"},
};

std::u32string fix_c1_controls(std::u32string text) {
  for (char32_t& c : text) {
    if (c >= 0x80 && c <= 0x9F)
      c = kWindows1252[c - 0x80];
  }
  return text;
}

std::u32string fix_latin_ligatures(const std::u32string& text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    const auto found = std::ranges::lower_bound(kLigatures, c, {}, &Ligature::ligature);
    if (found != std::end(kLigatures) && found->ligature == c) {
      out += found->letters;
    } else {
      out += c;
    }
  }
  return out;
}

std::u32string fix_character_width(const std::u32string& text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (c == 0x3000) {
      out += U' ';
    } else if (c >= 0xFF01 && c < 0xFFF0) {
      out += to_nfkc(c);
    } else {
      out += c;
    }
  }
  return out;
}

std::u32string uncurl_quotes(std::u32string text) {
  for (char32_t& c : text) {
    if (c >= 0x201C && c <= 0x201F)
      c = U'"';
    if (c == 0x2BC || (c >= 0x2018 && c <= 0x201B))
      c = U'\'';
  }
  return text;
}

std::u32string fix_line_breaks(const std::u32string& text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    if (c == U'\r' && i + 1 < text.size() && text[i + 1] == U'\n')
      continue;
    out += c == U'\r' || c == 0x2028 || c == 0x2029 || c == 0x85 ? U'\n' : c;
  }
  return out;
}

bool is_ascii_letter(char32_t c) { return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z'); }

// "ESC [ digits and semicolons letter".
std::u32string remove_terminal_escapes(const std::u32string& text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == U'\x1B' && i + 1 < text.size() && text[i + 1] == U'[') {
      size_t end = i + 2;
      while (end < text.size() && (text[end] == U';' || u_isdigit(static_cast<UChar32>(text[end]))))
        ++end;
      if (end < text.size() && is_ascii_letter(text[end])) {
        i = end;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

bool is_removed_control(char32_t c) {
  return c < 0x09 || c == 0x0B || (c >= 0x0E && c < 0x20) || c == 0x7F || (c >= 0x206A && c < 0x2070) || c == 0xFEFF ||
         (c >= 0xFFF9 && c < 0xFFFD);
}

std::u32string remove_control_chars(std::u32string text) {
  std::erase_if(text, is_removed_control);
  return text;
}

std::u32string fix_line(std::u32string line, bool unescape, bool& has_mojibake) {
  while (true) {
    std::u32string fixed = unescape ? unescape_plain_entities(line) : line;
    has_mojibake = has_mojibake || looks_like_mojibake(fixed);
    fixed = fix_latin_ligatures(fix_c1_controls(std::move(fixed)));
    fixed = fix_line_breaks(uncurl_quotes(fix_character_width(fixed)));
    fixed = to_nfc(remove_control_chars(remove_terminal_escapes(fixed)));
    if (fixed == line)
      return line;
    line = std::move(fixed);
  }
}

}  // namespace

FixedText fix_text(const std::u32string& text) {
  FixedText out;
  bool unescape = true;
  for (size_t at = 0; at < text.size();) {
    const size_t newline = text.find(U'\n', at);
    const size_t end = newline == std::u32string::npos ? text.size() : newline + 1;
    const std::u32string line = text.substr(at, end - at);
    // A literal "<" means real HTML: from this line on references are left alone.
    if (line.find(U'<') != std::u32string::npos)
      unescape = false;
    out.text += fix_line(line, unescape, out.has_mojibake);
    at = end;
  }
  return out;
}

}  // namespace darkroom
