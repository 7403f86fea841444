#include "ftfy_fixes.h"

#include <algorithm>
#include <string_view>

#include "html_entities.h"
#include "mojibake.h"
#include "normal_form.h"
#include "unicode_classes.h"
#include "windows_1252.h"

namespace darkroom {
namespace {

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
    if (is_c1_control(c)) {
      c = windows_1252_of_c1(c);
    }
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
    } else if (is_wide_form(c)) {
      append_plain_form(c, out);
    } else {
      out += c;
    }
  }
  return out;
}

std::u32string uncurl_quotes(std::u32string text) {
  for (char32_t& c : text) {
    if (c >= 0x201C && c <= 0x201F) {
      c = U'"';
    }
    if (c == 0x2BC || (c >= 0x2018 && c <= 0x201B)) {
      c = U'\'';
    }
  }
  return text;
}

std::u32string fix_line_breaks(const std::u32string& text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    if (c == U'\r' && i + 1 < text.size() && text[i + 1] == U'\n') {
      continue;
    }
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
      while (end < text.size() && (text[end] == U';' || is_decimal_digit(text[end]))) {
        ++end;
      }
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

// Everything but the references and the look for mojibake.
std::u32string fix_characters(std::u32string text) {
  text = fix_latin_ligatures(fix_c1_controls(std::move(text)));
  text = fix_line_breaks(uncurl_quotes(fix_character_width(text)));
  return normalize_nfc(remove_control_chars(remove_terminal_escapes(text)));
}

bool holds_non_ascii(std::u32string_view text) {
  return std::ranges::any_of(text, [](char32_t c) { return c >= 0x80; });
}

// All references at once, for lines in which they are nested deeper than ftfy's passes are followed one by one.
std::u32string unescape_deeply(const std::u32string& line, bool& has_mojibake) {
  bool saw_non_ascii = holds_non_ascii(line);
  std::u32string settled = unescape_nested_entities(line, [&](std::u32string resolved) {
    saw_non_ascii = saw_non_ascii || holds_non_ascii(resolved);
    return fix_characters(std::move(resolved));
  });
  // ftfy looks for mojibake between the passes that were skipped.
  has_mojibake = has_mojibake || (saw_non_ascii && settled != line);
  return settled;
}

// ftfy repeats its passes until nothing changes. Each takes one level off nested references ("&amp;amp;amp;"), of which a
// line may hold thousands; so after a few passes the rest is taken off at once, and the whole takes linear time.
std::u32string fix_line(std::u32string line, bool unescape, FixedText& out) {
  constexpr int kSinglePasses = 8;
  for (int pass = 0;; ++pass) {
    out.num_characters_read += line.size();
    std::u32string fixed = !unescape              ? line
                           : pass < kSinglePasses ? unescape_plain_entities(line)
                                                  : unescape_deeply(line, out.has_mojibake);
    out.has_mojibake = out.has_mojibake || looks_like_mojibake(fixed);
    fixed = fix_characters(std::move(fixed));
    if (fixed == line) {
      return line;
    }
    line = std::move(fixed);
  }
}

}  // namespace

FixedText fix_text(const std::u32string& text) {
  constexpr size_t kLongestLine = 1'000'000;  // ftfy's max_decode_length.
  FixedText out;
  bool unescape = true;
  for (size_t at = 0; at < text.size();) {
    const size_t newline = text.find(U'\n', at);
    const size_t line_end = newline == std::u32string::npos ? text.size() : newline + 1;
    const size_t end = std::min(line_end, at + kLongestLine);
    const std::u32string line = text.substr(at, end - at);
    // A literal "<" means real HTML: from this line on references are left alone.
    if (line.find(U'<') != std::u32string::npos) {
      unescape = false;
    }
    out.text += fix_line(line, unescape, out);
    at = end;
  }
  return out;
}

}  // namespace darkroom
