#include "utf32.h"

#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

icu::UnicodeString to_icu(const std::u32string& text) {
  return icu::UnicodeString::fromUTF32(reinterpret_cast<const UChar32*>(text.data()), static_cast<int32_t>(text.size()));
}

std::u32string from_icu(const icu::UnicodeString& text) {
  std::u32string out(static_cast<size_t>(text.countChar32()), U'\0');
  UErrorCode error = U_ZERO_ERROR;
  text.toUTF32(reinterpret_cast<UChar32*>(out.data()), static_cast<int32_t>(out.size()), error);
  return out;
}

std::u32string normalize(const icu::Normalizer2* normalizer, UErrorCode error, const std::u32string& text) {
  DARKROOM_CHECK(U_SUCCESS(error), "ICU has no normalisation data:", u_errorName(error));
  icu::UnicodeString normalized = normalizer->normalize(to_icu(text), error);
  DARKROOM_CHECK(U_SUCCESS(error), "normalising a caption failed:", u_errorName(error));
  return from_icu(normalized);
}

}  // namespace

std::u32string to_utf32(std::string_view utf8) {
  std::u32string out;
  out.reserve(utf8.size());
  const auto* bytes = reinterpret_cast<const uint8_t*>(utf8.data());
  const auto size = static_cast<int64_t>(utf8.size());
  for (int64_t at = 0; at < size;) {
    UChar32 c;
    U8_NEXT_OR_FFFD(bytes, at, size, c);
    out += static_cast<char32_t>(c);
  }
  return out;
}

std::string to_utf8(const std::u32string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    uint8_t bytes[U8_MAX_LENGTH];
    int32_t size = 0;
    U8_APPEND_UNSAFE(bytes, size, c);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  return out;
}

std::u32string to_lower(const std::u32string& text) { return from_icu(to_icu(text).toLower(icu::Locale::getRoot())); }

std::u32string to_upper(const std::u32string& text) { return from_icu(to_icu(text).toUpper(icu::Locale::getRoot())); }

std::u32string to_nfc(const std::u32string& text) {
  UErrorCode error = U_ZERO_ERROR;
  const auto* normalizer = icu::Normalizer2::getNFCInstance(error);
  return normalize(normalizer, error, text);
}

std::u32string to_nfkc(char32_t code_point) {
  UErrorCode error = U_ZERO_ERROR;
  const auto* normalizer = icu::Normalizer2::getNFKCInstance(error);
  return normalize(normalizer, error, std::u32string(1, code_point));
}

}  // namespace darkroom
