#include "darkroom/web/path_rules.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace darkroom {
namespace {

bool is_unreserved(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

void append_escaped(std::string& out, unsigned char octet) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  out += '%';
  out += kDigits[octet >> 4];
  out += kDigits[octet & 15];
}

bool is_escape(std::string_view text, size_t at) {
  return text[at] == '%' && at + 2 < text.size() && hex_digit(text[at + 1]) >= 0 && hex_digit(text[at + 2]) >= 0;
}

std::string canonical_form(std::string_view text, bool is_pattern) {
  std::string out;
  out.reserve(text.size() + 1);
  if (text.empty() || (text.front() != '/' && !(is_pattern && text.front() == '*'))) {
    out += '/';
  }
  bool in_query = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_escape(text, i)) {
      const auto octet = static_cast<unsigned char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
      if (is_unreserved(octet) || (in_query && (octet == '/' || octet == '?'))) {
        out += static_cast<char>(octet);
      } else {
        append_escaped(out, octet);
      }
      continue;
    }
    const char c = text[i];
    in_query = in_query || c == '?';
    const bool is_special = is_pattern && (c == '*' || (c == '$' && i + 1 == text.size()));
    if (is_special || c == '/' || c == '?' || is_unreserved(static_cast<unsigned char>(c))) {
      out += c;
    } else {
      append_escaped(out, static_cast<unsigned char>(c));
    }
  }
  return out;
}

// Searches with a bound on the octets compared by all its searches together.
class BoundedSearch {
 public:
  explicit BoundedSearch(size_t max_steps) : left_(max_steps) {}

  bool is_spent() const { return left_ == 0; }

  bool starts_with(std::string_view text, std::string_view part) { return spend(part.size()) && text.starts_with(part); }

  bool ends_with(std::string_view text, std::string_view part) { return spend(part.size()) && text.ends_with(part); }

  /// As std::string_view::find.
  size_t find(std::string_view text, std::string_view part, size_t from) {
    const size_t found = part.size() == 1 ? text.find(part.front(), from) : find_long(text, part, from);
    spend((found == std::string_view::npos ? text.size() : found) - from + 2 * part.size());
    return found;
  }

 private:
  bool spend(size_t steps) {
    left_ -= std::min(left_, steps + 1);
    return left_ > 0;
  }

  // In linear time (Knuth, Morris, Pratt 1977).
  size_t find_long(std::string_view text, std::string_view part, size_t from) {
    find_borders(part);
    size_t matched = 0;
    for (size_t i = from; i < text.size(); ++i) {
      while (matched > 0 && text[i] != part[matched]) {
        matched = borders_[matched - 1];
      }
      matched += text[i] == part[matched] ? 1 : 0;
      if (matched == part.size()) {
        return i + 1 - matched;
      }
    }
    return std::string_view::npos;
  }

  // borders_[i]: length of the longest proper beginning of part[0..i] that also ends it.
  void find_borders(std::string_view part) {
    borders_.assign(part.size(), 0);
    for (size_t i = 1, length = 0; i < part.size(); ++i) {
      while (length > 0 && part[i] != part[length]) {
        length = borders_[length - 1];
      }
      length += part[i] == part[length] ? 1 : 0;
      borders_[i] = static_cast<uint32_t>(length);
    }
  }

  size_t left_;
  std::vector<uint32_t> borders_;
};

// Each part between stars goes to its first place after the part before: if any placing matches, this one does.
bool matches_special(std::string_view pattern, std::string_view path, BoundedSearch& search) {
  const bool is_anchored = pattern.ends_with('$');
  if (is_anchored) {
    pattern.remove_suffix(1);
  }
  size_t star = pattern.find('*');
  const std::string_view first = pattern.substr(0, star);
  if (!search.starts_with(path, first)) {
    return false;
  }
  size_t at = first.size();
  while (star != std::string_view::npos) {
    const size_t begin = star + 1;
    star = pattern.find('*', begin);
    const std::string_view part = pattern.substr(begin, star == std::string_view::npos ? star : star - begin);
    if (star == std::string_view::npos && is_anchored) {
      return path.size() - at >= part.size() && search.ends_with(path, part);
    }
    if (part.empty()) {
      continue;
    }
    at = search.find(path, part, at);
    if (at == std::string_view::npos) {
      return false;
    }
    at += part.size();
  }
  return !is_anchored || at == path.size();
}

// Whether a canonical pattern has "%2F" or "%3F" where the URL's query may have begun. (Behind a "?" of the pattern's own they are undone.)
bool has_escape_behind_star(std::string_view pattern) {
  const std::string_view behind = pattern.substr(std::min(pattern.find('*'), pattern.size()));
  return behind.find("%2F") != std::string_view::npos || behind.find("%3F") != std::string_view::npos;
}

// The canonical path with "/" and "?" of its query escaped.
std::string with_escaped_query(std::string_view path) {
  const size_t query = std::min(path.find('?'), path.size());
  std::string out(path.substr(0, query + 1));
  for (size_t i = query + 1; i < path.size(); ++i) {
    out += path[i] == '/' ? "%2F" : path[i] == '?' ? "%3F" : std::string(1, path[i]);
  }
  return out;
}

}  // namespace

std::string canonical_path(std::string_view path_and_query) {
  return canonical_form(path_and_query.substr(0, path_and_query.find('#')), false);
}

void PathRules::add(std::string_view pattern, bool verdict) {
  if (pattern.empty()) {
    return;
  }
  std::string canonical = canonical_form(pattern, true);
  const bool is_special = canonical.find_first_of("*$") != std::string::npos;
  const bool may_be_in_query = has_escape_behind_star(canonical);
  (is_special ? special_ : plain_).push_back({std::move(canonical), verdict, may_be_in_query});
}

void PathRules::add_all(const PathRules& other) {
  plain_.insert(plain_.end(), other.plain_.begin(), other.plain_.end());
  special_.insert(special_.end(), other.special_.begin(), other.special_.end());
}

// REQUIRES: equal patterns stand together.
void PathRules::drop_doubles(std::vector<Rule>& rules) const {
  size_t kept = 0;
  for (size_t i = 0; i < rules.size(); ++i) {
    if (kept > 0 && rules[kept - 1].pattern == rules[i].pattern) {
      rules[kept - 1].verdict = rules[kept - 1].verdict == rules[i].verdict ? rules[i].verdict : tie_;
    } else {
      if (kept != i) {
        rules[kept] = std::move(rules[i]);
      }
      ++kept;
    }
  }
  rules.erase(rules.begin() + static_cast<std::ptrdiff_t>(kept), rules.end());
  rules.shrink_to_fit();
}

void PathRules::finish() {
  std::ranges::sort(plain_, {}, &Rule::pattern);
  drop_doubles(plain_);
  std::vector<int32_t> open;  // Patterns that the next one may begin with, shortest first.
  for (size_t i = 0; i < plain_.size(); ++i) {
    while (!open.empty() && !plain_[i].pattern.starts_with(plain_[static_cast<size_t>(open.back())].pattern)) {
      open.pop_back();
    }
    plain_[i].parent = open.empty() ? -1 : open.back();
    open.push_back(static_cast<int32_t>(i));
  }
  std::ranges::sort(special_, {}, &Rule::pattern);
  drop_doubles(special_);
  std::ranges::sort(special_, [&](const Rule& a, const Rule& b) {
    return std::tuple(b.pattern.size(), a.verdict != tie_) < std::tuple(a.pattern.size(), b.verdict != tie_);
  });
}

const PathRules::Rule* PathRules::longest_plain(std::string_view path) const {
  // Every pattern that the path begins with also begins the last one that is not greater than the path.
  const auto after = std::ranges::upper_bound(plain_, path, {}, [](const Rule& rule) { return std::string_view(rule.pattern); });
  if (after == plain_.begin()) {
    return nullptr;
  }
  int32_t at = static_cast<int32_t>(after - plain_.begin()) - 1;
  const std::string& nearest = plain_[static_cast<size_t>(at)].pattern;
  const auto shared = std::ranges::mismatch(nearest, path).in1 - nearest.begin();
  while (at >= 0 && plain_[static_cast<size_t>(at)].pattern.size() > static_cast<size_t>(shared)) {
    at = plain_[static_cast<size_t>(at)].parent;
  }
  return at < 0 ? nullptr : &plain_[static_cast<size_t>(at)];
}

std::optional<bool> PathRules::match(std::string_view canonical) const {
  const Rule* best = longest_plain(canonical);
  BoundedSearch search(kMaxSteps);
  std::optional<std::string> escaped;  // Made for the first rule that needs it.
  const auto matches_in_query = [&](const Rule& rule) {
    if (!rule.may_be_in_query || search.is_spent()) {
      return false;
    }
    if (!escaped) {
      escaped = with_escaped_query(canonical);
    }
    return matches_special(rule.pattern, *escaped, search);
  };
  for (const Rule& rule : special_) {
    if (best != nullptr &&
        (rule.pattern.size() < best->pattern.size() || (rule.pattern.size() == best->pattern.size() && rule.verdict != tie_))) {
      break;
    }
    if (matches_special(rule.pattern, canonical, search) || matches_in_query(rule)) {
      best = &rule;
      break;
    }
    if (search.is_spent()) {
      return false;
    }
  }
  return best == nullptr ? std::nullopt : std::optional(best->verdict);
}

size_t PathRules::num_bytes() const {
  size_t sum = (plain_.capacity() + special_.capacity()) * sizeof(Rule);
  for (const auto* rules : {&plain_, &special_}) {
    for (const Rule& rule : *rules) {
      sum += rule.pattern.capacity();
    }
  }
  return sum;
}

}  // namespace darkroom
