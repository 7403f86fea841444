#pragma once

#include <string>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

struct WhereToken {
  enum class Kind {
    kEnd,
    kWord,          ///< A keyword or a column's name.
    kQuotedColumn,  ///< "name"
    kNumber,
    kText,    ///< 'text'
    kSymbol,  ///< An operator, a parenthesis, a comma, or a character that has no meaning.
  };
  Kind kind = Kind::kEnd;
  size_t place = 0;         ///< Characters from 1.
  std::string_view source;  ///< As it stands in the text.
  std::string text;         ///< Of what stood in quotation marks, without them.
};

/// Cuts an expression into tokens, one at a time.
class WhereTokens {
 public:
  /// REQUIRES: `text` is UTF-8 and outlives this.
  explicit WhereTokens(std::string_view text) : text_(text) {}

  /// kEnd again and again behind the last.
  /// Errors: kInvalidArgument where a quotation mark is not closed.
  Result<WhereToken> next();

 private:
  WhereToken take(WhereToken::Kind kind, size_t num_bytes);
  Result<WhereToken> take_quoted(WhereToken::Kind kind, std::string_view what);

  std::string_view text_;
  size_t offset_ = 0;
  size_t place_ = 1;  // Of offset_, in characters.
};

/// As a message shows it: 'it' without end is cut.
std::string found_token(const WhereToken& token);

}  // namespace darkroom
