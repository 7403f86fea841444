#include "caption_cleaning.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <memory>

#include "darkroom/core/check.h"
#include "ftfy_fixes.h"
#include "html_entities.h"
#include "unicode_classes.h"
#include "utf32.h"

namespace darkroom {
namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void lower_ascii(std::string_view text, std::string& out) {
  out.resize(text.size());
  std::ranges::transform(text, out.begin(), [](char c) { return is_ascii_space(c) ? ' ' : ascii_lower(c); });
}

// Nothing in it that fix_text or HTML unescaping would touch.
bool is_plain_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= ' ' && c < '\x7F' && c != '&') || c == '\t' || c == '\n' || c == '\r'; });
}

// NFC over the characters of Unicode 9 only: later ones are boundaries, whatever their combining class is today.
class Unicode9Composer {
 public:
  Unicode9Composer() {
    UErrorCode error = U_ZERO_ERROR;
    known_ = std::make_unique<icu::UnicodeSet>(u"[:Age=9.0:]", error);
    const icu::Normalizer2* composer = icu::Normalizer2::getNFCInstance(error);
    DARKROOM_CHECK(U_SUCCESS(error), "ICU has no Unicode data:", u_errorName(error));
    known_->freeze();
    filtered_ = std::make_unique<icu::FilteredNormalizer2>(*composer, *known_);
  }

  std::string compose(std::string_view utf8) const {
    std::string out;
    icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(utf8.size()));
    UErrorCode error = U_ZERO_ERROR;
    filtered_->normalizeUTF8(0, icu::StringPiece(utf8.data(), static_cast<int32_t>(utf8.size())), sink, nullptr, error);
    DARKROOM_CHECK(U_SUCCESS(error), "normalising a caption failed:", u_errorName(error));
    return out;
  }

 private:
  std::unique_ptr<icu::UnicodeSet> known_;  // Outlives filtered_, which refers to it.
  std::unique_ptr<icu::FilteredNormalizer2> filtered_;
};

void append_code_point(std::string& out, char32_t c) {
  uint8_t bytes[U8_MAX_LENGTH];
  int32_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, c);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

// str.isspace of Python: white space and the four ASCII separators.
bool is_python_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || character_class(c) == CharacterClass::kSpace; }

std::u32string collapse_spaces(const std::u32string& text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (!is_python_space(c)) {
      out += c;
    } else if (!out.empty() && out.back() != U' ') {
      out += U' ';
    }
  }
  if (!out.empty() && out.back() == U' ')
    out.pop_back();
  return out;
}

// Newer than Unicode 14, and of a kind that versions of Unicode treat differently: a letter, a number, a mark, or a
// character that this ICU does not know either. Newer symbols, such as emoji, are symbols everywhere.
bool is_new_character(char32_t c) {
  if (c < 0x800)
    return false;
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  if (age[0] != 0 && age[0] <= 14)
    return false;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & (U_GC_L_MASK | U_GC_N_MASK | U_GC_M_MASK | U_GC_CN_MASK)) != 0;
}

}  // namespace

void clean_hugging_face(std::string_view text, std::string& out) {
  if (is_ascii(text)) {
    lower_ascii(text, out);
    return;
  }
  static const Unicode9Composer composer;
  const std::string composed = composer.compose(to_utf8(to_utf32(text)));
  out.clear();
  const auto size = static_cast<int64_t>(composed.size());
  for (int64_t at = 0; at < size;) {
    char32_t c;
    U8_NEXT_UNSAFE(composed.data(), at, c);
    if (character_class(c) == CharacterClass::kSpace) {
      out += ' ';
    } else if (c == 0x130) {
      out += "i\u0307";
    } else {
      append_code_point(out, lower_case(c));
    }
  }
}

Unported clean_open_clip(std::string_view text, std::string& out) {
  if (is_plain_ascii(text)) {
    lower_ascii(text, out);
    return Unported::kNothing;
  }
  const FixedText fixed = fix_text(to_utf32(text));
  const std::u32string unescaped = unescape_html(unescape_html(fixed.text));
  std::u32string lower = to_lower(collapse_spaces(unescaped));
  // The case-insensitive expression takes U+0345, whose capital is a letter, neither for a letter nor for anything else.
  std::ranges::replace(lower, U'\u0345', U' ');
  out = to_utf8(lower);
  if (fixed.has_mojibake)
    return Unported::kMojibake;
  return std::ranges::any_of(unescaped, is_new_character) ? Unported::kNewCharacter : Unported::kNothing;
}

}  // namespace darkroom
