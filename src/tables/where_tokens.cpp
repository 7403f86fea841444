#include "where_tokens.h"

#include <algorithm>
#include <array>

#include "darkroom/core/utf8.h"
#include "exact_number.h"
#include "where_tree.h"

namespace darkroom {

namespace {

bool is_space(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

bool is_word_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') || letter == '_';
}

size_t count_characters(std::string_view text) { return decode_utf8(text).size(); }

size_t symbol_length(std::string_view text) {
  constexpr std::array<std::string_view, 4> kLongSymbols = {"!=", "<>", "<=", ">="};
  const bool is_long = std::ranges::find(kLongSymbols, text.substr(0, 2)) != kLongSymbols.end();
  return is_long ? 2 : first_character(text).num_bytes;
}

}  // namespace

Result<WhereToken> WhereTokens::next() {
  const std::string_view rest = text_.substr(offset_);
  const auto begin = std::find_if_not(rest.begin(), rest.end(), is_space);
  place_ += static_cast<size_t>(begin - rest.begin());
  offset_ += static_cast<size_t>(begin - rest.begin());
  const std::string_view left = text_.substr(offset_);
  if (left.empty()) {
    return take(WhereToken::Kind::kEnd, 0);
  }
  if (left[0] == '\'') {
    return take_quoted(WhereToken::Kind::kText, "text");
  }
  if (left[0] == '"') {
    return take_quoted(WhereToken::Kind::kQuotedColumn, "column name");
  }
  if (const size_t length = decimal_length(left); length > 0) {
    return take(WhereToken::Kind::kNumber, length);
  }
  const auto word_end = std::find_if_not(left.begin(), left.end(), is_word_letter);
  if (word_end != left.begin()) {
    return take(WhereToken::Kind::kWord, static_cast<size_t>(word_end - left.begin()));
  }
  return take(WhereToken::Kind::kSymbol, symbol_length(left));
}

WhereToken WhereTokens::take(WhereToken::Kind kind, size_t num_bytes) {
  WhereToken token{.kind = kind, .place = place_, .source = text_.substr(offset_, num_bytes), .text = {}};
  offset_ += num_bytes;
  place_ += count_characters(token.source);
  return token;
}

Result<WhereToken> WhereTokens::take_quoted(WhereToken::Kind kind, std::string_view what) {
  const char mark = text_[offset_];
  std::string text;
  size_t end = offset_ + 1;
  while (true) {
    const size_t next_mark = text_.find(mark, end);
    if (next_mark == std::string_view::npos) {
      return Status::invalid_argument(
          fmt::format("{}this {} has no end; expected {}, found: the end of the expression", where_place(place_), what, mark));
    }
    text += text_.substr(end, next_mark - end);
    end = next_mark + 1;
    if (end == text_.size() || text_[end] != mark) {
      break;
    }
    text += mark;
    ++end;
  }
  WhereToken token = take(kind, end - offset_);
  token.text = std::move(text);
  return token;
}

std::string found_token(const WhereToken& token) {
  constexpr size_t kMostCharacters = 60;
  if (token.kind == WhereToken::Kind::kEnd) {
    return "the end of the expression";
  }
  size_t num_bytes = 0;
  for (size_t i = 0; i < kMostCharacters && num_bytes < token.source.size(); ++i) {
    num_bytes += first_character(token.source.substr(num_bytes)).num_bytes;
  }
  return std::string(token.source.substr(0, num_bytes)) + (num_bytes < token.source.size() ? "..." : "");
}

}  // namespace darkroom
