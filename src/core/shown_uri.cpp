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

/// Of what stands behind "://" and before "?" and "#": where the host begins.
size_t begin_of_host(std::string_view place) {
  const std::string_view authority = place.substr(0, place.find('/'));
  size_t at = authority.rfind('@');
  if (at == std::string_view::npos) {
    // A password with a slash in it: "user:pa/ss@host". A port is digits.
    const size_t colon = authority.find(':');
    const bool has_port = colon == std::string_view::npos || authority.front() == '[' ||
                          authority.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
    at = has_port ? std::string_view::npos : place.rfind('@');
  }
  return at == std::string_view::npos ? 0 : at + 1;
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
  // "#" begins what is never sent only on the web; elsewhere it is a letter of a name.
  const bool is_web = scheme == "https" || scheme == "http";
  const size_t mark = is_web ? place.find_first_of("?#") : place.rfind('?');
  if (mark != std::string_view::npos) {
    query = place.substr(mark);
    place = place.substr(0, mark);
  }
  const std::string_view shown = place.substr(begin_of_host(place));
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
