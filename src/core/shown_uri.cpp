#include "darkroom/core/shown_uri.h"
#include "darkroom/core/ascii_case.h"

#include <algorithm>
#include <cstddef>

namespace darkroom {
namespace {

constexpr std::string_view kSchemeEnd = "://";
constexpr std::string_view kCut = "?...";

bool is_scheme_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}

bool ends_uri(char c) {
  return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\'' || c == '`' || c == '<' || c == '>' || c == '|';
}

/// Only the web's addresses have ports.
bool has_port(std::string_view authority) {
  const std::string_view port = authority.substr(authority.rfind(':') + 1);
  const bool is_number = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string_view::npos;
  return authority.front() == '[' || (is_number && authority.find(':') == authority.rfind(':'));
}

/// Of what stands behind "://" and before "?" and "#": where the host begins.
size_t begin_of_host(std::string_view place, bool is_web) {
  const std::string_view authority = place.substr(0, place.find('/'));
  size_t at = authority.rfind('@');
  // A password with a slash in it: "user:pa/ss@host".
  if (at == std::string_view::npos && authority.find(':') != std::string_view::npos && !(is_web && has_port(authority))) {
    at = place.rfind('@');
  }
  return at == std::string_view::npos ? 0 : at + 1;
}

/// Where the settings or the query begin, npos for none. Elsewhere than on the web "#" is a letter of a name, and so is a "?" without NAME=
/// behind it.
size_t find_query(std::string_view place, bool is_web) {
  if (is_web) {
    return place.find_first_of("?#");
  }
  for (size_t mark = place.find('?'); mark != std::string_view::npos; mark = place.find('?', mark + 1)) {
    const size_t end = place.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", mark + 1);
    if (end != std::string_view::npos && place[end] == '=' && end > mark + 1) {
      return mark;
    }
  }
  return place.rfind('?');
}

bool is_harmless_query(std::string_view scheme, std::string_view query) {
  if (scheme == "hf") {
    while (!query.empty()) {
      const std::string_view field = query.substr(0, query.find('&'));
      if (!field.starts_with("config=") && !field.starts_with("split=")) {
        return field.find('=') == std::string_view::npos && field.size() == query.size();
      }
      query.remove_prefix(std::min(field.size() + 1, query.size()));
    }
    return true;
  }
  return scheme != "https" && scheme != "http" && query.find_first_of("=&") == std::string_view::npos;
}

}  // namespace

std::string shown_uri(std::string_view uri) {
  const size_t colon = uri.find(kSchemeEnd);
  if (colon == std::string_view::npos) {
    return std::string(uri);
  }
  const std::string scheme = ascii_lower(std::string(uri.substr(0, colon)));
  std::string_view place = uri.substr(colon + kSchemeEnd.size());
  std::string_view query;
  const bool is_web = scheme == "https" || scheme == "http";
  const size_t mark = find_query(place, is_web);
  if (mark != std::string_view::npos) {
    query = place.substr(mark);
    place = place.substr(0, mark);
  }
  const std::string_view shown = place.substr(begin_of_host(place, is_web));
  const bool stays = query.empty() || is_harmless_query(scheme, query.substr(1));
  return std::string(uri.substr(0, colon + kSchemeEnd.size())) + std::string(shown) + std::string(stays ? query : kCut);
}

std::string without_uri_secrets(std::string_view text) {
  std::string shown;
  while (true) {
    const size_t colon = text.find(kSchemeEnd);
    if (colon == std::string_view::npos) {
      return shown.append(text);
    }
    size_t begin = colon;
    while (begin > 0 && is_scheme_letter(text[begin - 1])) {
      --begin;
    }
    const size_t end = static_cast<size_t>(std::find_if(text.begin() + static_cast<ptrdiff_t>(colon), text.end(), ends_uri) - text.begin());
    shown.append(text.substr(0, begin));
    shown += shown_uri(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
}

}  // namespace darkroom
