#include "html_entities.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "darkroom/core/utf8.h"
#include "windows_1252.h"

namespace darkroom {
namespace {

struct Entity {
  std::string_view name;  // Without "&", with its ";" if it has one.
  std::string_view text;
};

#include "html_entity_table.inc"

std::optional<std::string_view> find_in(std::span<const Entity> entities, std::string_view name) {
  const auto found = std::ranges::lower_bound(entities, name, {}, &Entity::name);
  if (found == entities.end() || found->name != name) {
    return std::nullopt;
  }
  return found->text;
}

std::optional<std::string_view> find_entity(std::string_view name) { return find_in(kEntities, name); }

void append_numeric(std::u32string& out, uint32_t number) {
  if (number == 0 || number > 0x10FFFF || (number >= 0xD800 && number <= 0xDFFF)) {
    out += U'\uFFFD';
  } else if (number >= 0x80 && number <= 0x9F) {
    out += windows_1252_of_c1(static_cast<char32_t>(number));
  } else if (const bool is_dropped = (number < 0x20 && number != '\t' && number != '\n' && number != '\f' && number != '\r') ||
                                     number == 0x7F || (number >= 0xFDD0 && number <= 0xFDEF) || (number & 0xFFFE) == 0xFFFE;
             !is_dropped) {
    out += static_cast<char32_t>(number);
  }
}

int digit_value(char32_t c, int base) {
  int value = -1;
  if (c >= U'0' && c <= U'9') {
    value = static_cast<int>(c - U'0');
  }
  if (c >= U'a' && c <= U'f') {
    value = static_cast<int>(c - U'a') + 10;
  }
  if (c >= U'A' && c <= U'F') {
    value = static_cast<int>(c - U'A') + 10;
  }
  return value < base ? value : -1;
}

// Reads "#123;" or "#x1F;" (`at` is after "&#"). Returns where it ends, or `at` when there is no digit.
size_t read_numeric(const std::u32string& text, size_t at, uint32_t& number) {
  size_t digits = at;
  const int base = digits < text.size() && (text[digits] == U'x' || text[digits] == U'X') ? 16 : 10;
  if (base == 16) {
    ++digits;
  }
  size_t end = digits;
  uint64_t value = 0;
  for (; end < text.size() && digit_value(text[end], base) >= 0; ++end) {
    value = std::min<uint64_t>(value * base + digit_value(text[end], base), 0x110000);
  }
  if (end == digits) {
    return at;
  }
  number = static_cast<uint32_t>(value);
  return end < text.size() && text[end] == U';' ? end + 1 : end;
}

bool may_be_in_name(char32_t c) {
  return c != U'\t' && c != U'\n' && c != U'\f' && c != U' ' && c != U'<' && c != U'&' && c != U'#' && c != U';';
}

// Appends what "&" + `name` stands for: the entity, or the longest entity that starts it and the rest, or the text itself.
void append_named(std::u32string& out, const std::u32string& name) {
  const std::string bytes = encode_utf8(name);
  if (const auto whole = find_entity(bytes)) {
    out += decode_utf8(*whole);
    return;
  }
  for (size_t length = name.size() - 1; length > 1; --length) {
    if (const auto part = find_entity(encode_utf8(name.substr(0, length)))) {
      out += decode_utf8(*part);
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
  while (end < text.size() && end - at - 1 < kLongestName && may_be_in_name(text[end])) {
    ++end;
  }
  if (end == at + 1) {
    out += U'&';
    return end;
  }
  if (end < text.size() && text[end] == U';') {
    ++end;
  }
  append_named(out, text.substr(at + 1, end - at - 1));
  return end;
}

bool is_ascii_alphanumeric(char32_t c) { return (c >= U'0' && c <= U'9') || (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z'); }

constexpr size_t kLongestPlainName = 24;

// What ftfy makes of a reference "&...;"; the reference itself where it leaves it alone.
std::u32string resolve_plain(const std::u32string& reference) {
  if (reference[1] == U'#') {
    std::u32string resolved = unescape_html(reference);
    return resolved.find(U';') == std::u32string::npos ? resolved : reference;
  }
  const std::string name = encode_utf8(reference.substr(1));
  const auto text = find_entity(name);
  return decode_utf8(text ? *text : find_in(kShoutedEntities, name).value_or("&" + name));
}

// Where the reference begins that the ";" at the end of `text` closes, or text.size() where it closes none.
size_t find_reference(const std::u32string& text) {
  const size_t close = text.size() - 1;
  size_t name = close;
  while (name > 0 && close - name < kLongestPlainName && is_ascii_alphanumeric(text[name - 1])) {
    --name;
  }
  if (name == close || name == 0) {
    return text.size();
  }
  const size_t begin = text[name - 1] == U'#' && name > 1 ? name - 2 : name - 1;
  return text[begin] == U'&' ? begin : text.size();
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
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text[at] != U'&') {
      out += text[at++];
      continue;
    }
    const size_t name = at + 1 < text.size() && text[at + 1] == U'#' ? at + 2 : at + 1;
    size_t end = name;
    while (end < text.size() && end - name < kLongestPlainName && is_ascii_alphanumeric(text[end])) {
      ++end;
    }
    if (end > name && end < text.size() && text[end] == U';') {
      out += resolve_plain(text.substr(at, end + 1 - at));
      at = end + 1;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::u32string unescape_nested_entities(const std::u32string& text, const std::function<std::u32string(std::u32string)>& fix) {
  std::u32string out;
  out.reserve(text.size());
  std::u32string pending;  // What comes before the rest of `text`, last character first.
  for (const char32_t c : text) {
    pending += c;
    while (!pending.empty()) {
      out += pending.back();
      pending.pop_back();
      const size_t begin = out.back() == U';' ? find_reference(out) : out.size();
      if (begin == out.size()) {
        continue;
      }
      const std::u32string reference = out.substr(begin);
      if (std::u32string resolved = resolve_plain(reference); resolved != reference) {
        out.resize(begin);
        resolved = fix(std::move(resolved));
        pending.append(resolved.rbegin(), resolved.rend());
      }
    }
  }
  return out;
}

}  // namespace darkroom
