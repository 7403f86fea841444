#include "html_entities.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "utf32.h"

namespace darkroom {
namespace {

struct Entity {
  std::string_view name;  // Without "&", with its ";" if it has one.
  std::string_view text;
};

constexpr Entity kEntities[] = {
#include "html_entity_table.inc"
};

std::optional<std::string_view> find_entity(std::string_view name) {
  const auto found = std::ranges::lower_bound(kEntities, name, {}, &Entity::name);
  if (found == std::end(kEntities) || found->name != name)
    return std::nullopt;
  return found->text;
}

// Windows-1252 in place of the C1 controls, as HTML 5 reads numeric references; 0 where it has no character.
constexpr char32_t kC1References[] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
                                      0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
                                      0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

void append_numeric(std::u32string& out, uint32_t number) {
  if (number == 0 || number > 0x10FFFF || (number >= 0xD800 && number <= 0xDFFF)) {
    out += U'\uFFFD';
  } else if (number >= 0x80 && number <= 0x9F) {
    out += kC1References[number - 0x80];
  } else if (const bool is_dropped = (number < 0x20 && number != '\t' && number != '\n' && number != '\f' && number != '\r') ||
                                     number == 0x7F || (number >= 0xFDD0 && number <= 0xFDEF) || (number & 0xFFFE) == 0xFFFE;
             !is_dropped) {
    out += static_cast<char32_t>(number);
  }
}

int digit_value(char32_t c, int base) {
  int value = -1;
  if (c >= U'0' && c <= U'9')
    value = static_cast<int>(c - U'0');
  if (c >= U'a' && c <= U'f')
    value = static_cast<int>(c - U'a') + 10;
  if (c >= U'A' && c <= U'F')
    value = static_cast<int>(c - U'A') + 10;
  return value < base ? value : -1;
}

// Reads "#123;" or "#x1F;" (`at` is after "&#"). Returns where it ends, or `at` when there is no digit.
size_t read_numeric(const std::u32string& text, size_t at, uint32_t& number) {
  size_t digits = at;
  const int base = digits < text.size() && (text[digits] == U'x' || text[digits] == U'X') ? 16 : 10;
  if (base == 16)
    ++digits;
  size_t end = digits;
  uint64_t value = 0;
  for (; end < text.size() && digit_value(text[end], base) >= 0; ++end) {
    value = std::min<uint64_t>(value * base + digit_value(text[end], base), 0x110000);
  }
  if (end == digits)
    return at;
  number = static_cast<uint32_t>(value);
  return end < text.size() && text[end] == U';' ? end + 1 : end;
}

bool may_be_in_name(char32_t c) {
  return c != U'\t' && c != U'\n' && c != U'\f' && c != U' ' && c != U'<' && c != U'&' && c != U'#' && c != U';';
}

// Appends what "&" + `name` stands for: the entity, or the longest entity that starts it and the rest, or the text itself.
void append_named(std::u32string& out, const std::u32string& name) {
  const std::string bytes = to_utf8(name);
  if (const auto whole = find_entity(bytes)) {
    out += to_utf32(*whole);
    return;
  }
  for (size_t length = name.size() - 1; length > 1; --length) {
    if (const auto part = find_entity(to_utf8(name.substr(0, length)))) {
      out += to_utf32(*part);
      out += name.substr(length);
      return;
    }
  }
  out += U'&';
  out += name;
}

// One pass of html.unescape from the "&" at `at`; returns where it went on.
size_t unescape_one(const std::u32string& text, size_t at, std::u32string& out) {
  constexpr size_t kLongestName = 32;
  size_t end = at + 1;
  if (end < text.size() && text[end] == U'#') {
    uint32_t number = 0;
    const size_t number_end = read_numeric(text, end + 1, number);
    if (number_end > end + 1) {
      append_numeric(out, number);
      return number_end;
    }
  }
  while (end < text.size() && end - at - 1 < kLongestName && may_be_in_name(text[end]))
    ++end;
  if (end == at + 1) {
    out += U'&';
    return end;
  }
  if (end < text.size() && text[end] == U';')
    ++end;
  append_named(out, text.substr(at + 1, end - at - 1));
  return end;
}

bool is_ascii_alphanumeric(char32_t c) { return (c >= U'0' && c <= U'9') || (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z'); }

// ftfy also knows the upper-case spelling of a lower-case name, unless HTML itself reads that spelling otherwise.
std::optional<std::u32string> find_shouted_entity(const std::u32string& reference) {
  const std::string name = to_utf8(reference.substr(1));
  std::string lower = name;
  for (char& c : lower) {
    if (c >= 'a' && c <= 'z')
      return std::nullopt;
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c - 'A' + 'a');
  }
  const auto text = find_entity(lower);
  if (!text || unescape_html(reference) != reference)
    return std::nullopt;
  return to_upper(to_utf32(*text));
}

// What ftfy makes of a reference "&...;"; the reference itself where it leaves it alone.
std::u32string resolve_plain(const std::u32string& reference) {
  if (reference[1] == U'#') {
    std::u32string resolved = unescape_html(reference);
    return resolved.find(U';') == std::u32string::npos ? resolved : reference;
  }
  if (const auto text = find_entity(to_utf8(reference.substr(1))))
    return to_utf32(*text);
  return find_shouted_entity(reference).value_or(reference);
}

}  // namespace

std::u32string unescape_html(const std::u32string& text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text[at] == U'&') {
      at = unescape_one(text, at, out);
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::u32string unescape_plain_entities(const std::u32string& text) {
  constexpr size_t kLongestName = 24;
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text[at] != U'&') {
      out += text[at++];
      continue;
    }
    const size_t name = at + 1 < text.size() && text[at + 1] == U'#' ? at + 2 : at + 1;
    size_t end = name;
    while (end < text.size() && end - name < kLongestName && is_ascii_alphanumeric(text[end]))
      ++end;
    if (end > name && end < text.size() && text[end] == U';') {
      out += resolve_plain(text.substr(at, end + 1 - at));
      at = end + 1;
    } else {
      out += text[at++];
    }
  }
  return out;
}

}  // namespace darkroom
