#include "darkroom/web/opt_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "darkroom/web/header_text.h"

namespace darkroom {
namespace {

constexpr size_t kLongestDetail = 200;

// The first comma that does not stand within quotation marks; nothing where such a mark is not closed.
std::optional<size_t> find_unquoted_comma(std::string_view list) {
  bool is_quoted = false;
  size_t at = 0;
  for (; at < list.size() && (is_quoted || list[at] != ','); ++at) {
    if (list[at] == '"') {
      is_quoted = !is_quoted;
    } else if (is_quoted && list[at] == '\\') {
      ++at;
    }
  }
  return is_quoted ? std::nullopt : std::optional(at);
}

// Takes the next part of a list off its front. A comma within quotation marks separates nothing, up to the first mark that is not closed:
// from there on `has_quotes` is false, lest a slip hide what follows it (and each part be sought up to the end).
std::string_view take_part(std::string_view& list, bool& has_quotes) {
  const auto unquoted = has_quotes ? find_unquoted_comma(list) : std::nullopt;
  has_quotes = unquoted.has_value();
  const size_t end = std::min(unquoted ? *unquoted : list.find(','), list.size());
  const std::string_view part = trim_blanks(list.substr(0, end));
  list.remove_prefix(std::min(end + 1, list.size()));
  return part;
}

std::optional<bool> read_yes_or_no(std::string_view word) {
  if (same_word(word, "n") || same_word(word, "no")) {
    return false;
  }
  if (same_word(word, "y") || same_word(word, "yes")) {
    return true;
  }
  return std::nullopt;
}

// How exactly a key names training of generative models: 0 most exactly; nullopt: it speaks of something else.
std::optional<size_t> rank_of_key(std::string_view key) {
  if (same_word(key, "train-genai")) {
    return 0;
  }
  if (same_word(key, "train-ai") || same_word(key, "ai-train")) {
    return 1;
  }
  if (same_word(key, "bots")) {
    return 2;
  }
  return std::nullopt;
}

// Whether an X-Robots-Tag value forbids training, to everybody or to `agent`.
bool robots_tag_forbids(std::string_view value, std::string_view agent) {
  // Directives that carry a value look like an agent's name before its own directives.
  constexpr std::string_view kValued[] = {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"};
  bool is_for_us = true;
  bool has_quotes = false;
  while (!value.empty()) {
    std::string_view directive = take_part(value, has_quotes);
    if (const size_t colon = directive.find(':'); colon != std::string_view::npos) {
      const std::string_view named = trim_blanks(directive.substr(0, colon));
      // No agent's name has blanks in it; "Wed, 25 Jun 2010 15:00:00 GMT" has, behind its comma.
      const bool is_name = named.find_first_of(" \t") == std::string_view::npos;
      if (!is_name || std::ranges::any_of(kValued, [&](std::string_view valued) { return same_word(named, valued); })) {
        continue;
      }
      is_for_us = named == "*" || same_word(named, agent);
      directive = trim_blanks(directive.substr(colon + 1));
    }
    if (is_for_us && (same_word(directive, "noai") || same_word(directive, "noimageai"))) {
      return true;
    }
  }
  return false;
}

RowError opted_out(std::string_view name, std::string_view value) {
  return {RowErrorCode::kOptedOut, 0, fmt::format("{}: {}", name, value.substr(0, kLongestDetail))};
}

}  // namespace

std::optional<bool> training_preference(std::string_view value) {
  std::array<std::optional<bool>, 3> by_rank;
  bool has_quotes = true;
  while (!value.empty()) {
    std::string_view part = take_part(value, has_quotes);
    part = trim_blanks(part.substr(0, part.find(';')));
    const size_t equals = part.find('=');
    if (const auto rank = rank_of_key(trim_blanks(part.substr(0, equals)))) {
      by_rank[*rank] = equals == std::string_view::npos ? std::nullopt : read_yes_or_no(trim_blanks(part.substr(equals + 1)));
    }
  }
  for (const auto& said : by_rank) {
    if (said) {
      return said;
    }
  }
  return std::nullopt;
}

std::optional<RowError> header_opt_out(std::string_view name, std::string_view value, const OptOutRules& rules, std::string_view agent) {
  if (rules.noai && same_word(name, "X-Robots-Tag") && robots_tag_forbids(value, agent)) {
    return opted_out("X-Robots-Tag", value);
  }
  const bool is_preference = same_word(name, "Content-Usage") || same_word(name, "Content-Signal");
  if (rules.aipref && is_preference && training_preference(value) == false) {
    return opted_out(name, value);
  }
  return std::nullopt;
}

}  // namespace darkroom
