#include "where_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "darkroom/tables/where.h"
#include "where_tokens.h"

namespace darkroom {

namespace {

using NodeKind = WhereNode::Kind;
using TokenKind = WhereToken::Kind;

constexpr std::array<std::string_view, 9> kKeywords = {"AND", "OR", "NOT", "IN", "LIKE", "IS", "NULL", "TRUE", "FALSE"};

struct Operator {
  std::string_view symbol;
  WhereComparison comparison;
};
constexpr std::array kOperators = {
    Operator{"=", WhereComparison::kEqual},           Operator{"!=", WhereComparison::kNotEqual},
    Operator{"<>", WhereComparison::kNotEqual},       Operator{"<", WhereComparison::kLess},
    Operator{"<=", WhereComparison::kLessOrEqual},    Operator{">", WhereComparison::kGreater},
    Operator{">=", WhereComparison::kGreaterOrEqual},
};

bool is_same_word(std::string_view word, std::string_view keyword) {
  return std::equal(word.begin(), word.end(), keyword.begin(), keyword.end(),
                    [](char letter, char capital) { return (letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter) == capital; });
}

bool is_reserved(std::string_view word) {
  return std::ranges::any_of(kKeywords, [&](std::string_view keyword) { return is_same_word(word, keyword); });
}

std::string_view comparison_symbol(WhereComparison comparison) {
  return std::ranges::find(kOperators, comparison, &Operator::comparison)->symbol;
}

/// Recursive descent over the grammar in where.h; `depth` is how many parentheses and NOTs are open.
class WhereParser {
 public:
  explicit WhereParser(std::string_view text) : tokens_(text) {}

  Result<WhereNode> parse() {
    DARKROOM_RETURN_IF_ERROR(advance());
    DARKROOM_ASSIGN_OR_RETURN(WhereNode root, parse_or(0));
    if (token_.kind != TokenKind::kEnd) {
      return unexpected("AND, OR or the end of the expression");
    }
    return root;
  }

 private:
  Status advance() {
    DARKROOM_ASSIGN_OR_RETURN(token_, tokens_.next());
    return Status::ok();
  }

  Status unexpected(std::string_view expected) const {
    return Status::invalid_argument(fmt::format("{}expected {}, found: {}", where_place(token_.place), expected, found_token(token_)));
  }

  bool at_keyword(std::string_view keyword) const { return token_.kind == TokenKind::kWord && is_same_word(token_.source, keyword); }
  bool at_symbol(std::string_view symbol) const { return token_.kind == TokenKind::kSymbol && token_.source == symbol; }

  Result<WhereNode> parse_or(int depth) {
    return parse_joined(NodeKind::kOr, "OR",
                        [this, depth] { return parse_joined(NodeKind::kAnd, "AND", [this, depth] { return parse_not(depth); }); });
  }

  /// One or more of what `parse_part` reads, joined by a keyword. Parts that are joined in the same way become one list: both
  /// AND and OR are associative.
  template <typename ParsePart>
  Result<WhereNode> parse_joined(NodeKind kind, std::string_view keyword, const ParsePart& parse_part) {
    DARKROOM_ASSIGN_OR_RETURN(WhereNode first, parse_part());
    if (!at_keyword(keyword)) {
      return first;
    }
    WhereNode joined;
    joined.kind = kind;
    const auto add = [&joined](WhereNode part) {
      if (part.kind == joined.kind) {
        std::ranges::move(part.children, std::back_inserter(joined.children));
      } else {
        joined.children.push_back(std::move(part));
      }
    };
    add(std::move(first));
    while (at_keyword(keyword)) {
      DARKROOM_RETURN_IF_ERROR(advance());
      DARKROOM_ASSIGN_OR_RETURN(WhereNode part, parse_part());
      add(std::move(part));
    }
    return joined;
  }

  Status check_depth(int depth) const {
    return depth < WhereExpression::kMaxDepth
               ? Status::ok()
               : Status::invalid_argument(fmt::format("{}parentheses and NOTs nest deeper than {}, found: {}", where_place(token_.place),
                                                      WhereExpression::kMaxDepth, found_token(token_)));
  }

  Result<WhereNode> parse_not(int depth) {
    if (!at_keyword("NOT")) {
      return parse_condition(depth);
    }
    DARKROOM_RETURN_IF_ERROR(check_depth(depth));
    DARKROOM_RETURN_IF_ERROR(advance());
    WhereNode node;
    node.kind = NodeKind::kNot;
    DARKROOM_ASSIGN_OR_RETURN(WhereNode child, parse_not(depth + 1));
    node.children.push_back(std::move(child));
    return node;
  }

  Result<WhereNode> parse_condition(int depth) {
    if (at_symbol("(")) {
      DARKROOM_RETURN_IF_ERROR(check_depth(depth));
      DARKROOM_RETURN_IF_ERROR(advance());
      DARKROOM_ASSIGN_OR_RETURN(WhereNode node, parse_or(depth + 1));
      if (!at_symbol(")")) {
        return unexpected("AND, OR or )");
      }
      DARKROOM_RETURN_IF_ERROR(advance());
      return node;
    }
    if (!at_operand()) {
      return unexpected("a condition, such as width >= 512");
    }
    WhereNode node;
    DARKROOM_ASSIGN_OR_RETURN(WhereOperand left, parse_operand());
    node.operands.push_back(std::move(left));
    return parse_predicate(std::move(node));
  }

  /// What follows the left operand.
  Result<WhereNode> parse_predicate(WhereNode node) {
    const auto found = std::ranges::find_if(kOperators, [this](const Operator& one) { return at_symbol(one.symbol); });
    if (found != kOperators.end()) {
      return parse_comparison(std::move(node), found->comparison);
    }
    if (at_keyword("IS")) {
      return parse_is_null(std::move(node));
    }
    if (at_keyword("NOT")) {
      node.is_negated = true;
      DARKROOM_RETURN_IF_ERROR(advance());
      if (!at_keyword("IN") && !at_keyword("LIKE")) {
        return unexpected("IN or LIKE after NOT");
      }
    }
    if (at_keyword("IN")) {
      return parse_in(std::move(node));
    }
    if (at_keyword("LIKE")) {
      return parse_like(std::move(node));
    }
    const WhereOperand& operand = node.operands.front();
    if (operand.is_column || operand.kind == WhereKind::kBoolean) {
      node.kind = NodeKind::kIsTrue;
      const bool may_end = token_.kind == TokenKind::kEnd || at_symbol(")") || at_keyword("AND") || at_keyword("OR");
      return may_end ? Result<WhereNode>(std::move(node)) : unexpected("=, !=, <, <=, >, >=, IN, LIKE, IS, AND or OR");
    }
    return unexpected("=, !=, <, <=, >, >=, IN, LIKE or IS");
  }

  Result<WhereNode> parse_comparison(WhereNode node, WhereComparison comparison) {
    node.kind = NodeKind::kCompare;
    node.comparison = comparison;
    const bool orders = comparison != WhereComparison::kEqual && comparison != WhereComparison::kNotEqual;
    if (orders && node.operands[0].kind == WhereKind::kBoolean) {
      return unexpected("= or !=, because TRUE and FALSE have no order");
    }
    DARKROOM_RETURN_IF_ERROR(advance());
    if (at_keyword("NULL")) {
      return unexpected("a column, a number, a text, TRUE or FALSE (nothing equals NULL; write IS NULL)");
    }
    if (!at_operand()) {
      return unexpected("a column, a number, a text, TRUE or FALSE");
    }
    if (orders && (at_keyword("TRUE") || at_keyword("FALSE"))) {
      return unexpected("a column, a number or a text, because TRUE and FALSE have no order");
    }
    DARKROOM_RETURN_IF_ERROR(add_literal_or_column(node));
    return node;
  }

  Result<WhereNode> parse_is_null(WhereNode node) {
    node.kind = NodeKind::kIsNull;
    DARKROOM_RETURN_IF_ERROR(advance());
    if (at_keyword("NOT")) {
      node.is_negated = true;
      DARKROOM_RETURN_IF_ERROR(advance());
    }
    if (!at_keyword("NULL")) {
      return unexpected(node.is_negated ? "NULL" : "NULL or NOT NULL");
    }
    DARKROOM_RETURN_IF_ERROR(advance());
    return node;
  }

  Result<WhereNode> parse_in(WhereNode node) {
    node.kind = NodeKind::kIn;
    DARKROOM_RETURN_IF_ERROR(advance());
    if (!at_symbol("(")) {
      return unexpected("( after IN");
    }
    do {
      DARKROOM_RETURN_IF_ERROR(advance());
      if (at_keyword("NULL")) {
        return unexpected("a number, a text, TRUE or FALSE (nothing equals NULL; write IS NULL)");
      }
      if (!at_literal()) {
        return unexpected("a number, a text, TRUE or FALSE");
      }
      DARKROOM_RETURN_IF_ERROR(add_literal_or_column(node));
    } while (at_symbol(","));
    if (!at_symbol(")")) {
      return unexpected("a comma or )");
    }
    DARKROOM_RETURN_IF_ERROR(advance());
    return node;
  }

  Result<WhereNode> parse_like(WhereNode node) {
    node.kind = NodeKind::kLike;
    if (!node.operands[0].is_column && node.operands[0].kind != WhereKind::kText) {
      return unexpected("=, !=, <, <=, >, >=, IN or IS, because LIKE is for texts");
    }
    DARKROOM_RETURN_IF_ERROR(advance());
    if (token_.kind != TokenKind::kText) {
      return unexpected("a pattern in single quotation marks, such as 'https://%'");
    }
    DARKROOM_RETURN_IF_ERROR(add_literal_or_column(node));
    return node;
  }

  bool at_literal() const {
    return token_.kind == TokenKind::kNumber || token_.kind == TokenKind::kText || at_keyword("TRUE") || at_keyword("FALSE");
  }
  bool at_operand() const {
    return at_literal() || token_.kind == TokenKind::kQuotedColumn || (token_.kind == TokenKind::kWord && !is_reserved(token_.source));
  }

  /// Adds the operand that is next. A literal is of the same kind as the literals before it.
  Status add_literal_or_column(WhereNode& node) {
    const WhereToken token = token_;
    DARKROOM_ASSIGN_OR_RETURN(WhereOperand operand, parse_operand());
    for (const WhereOperand* before : {&node.operands.front(), &node.operands.back()}) {
      if (!before->is_column && !operand.is_column && before->kind != operand.kind) {
        return Status::invalid_argument(fmt::format("{}expected {} like {}, found: {}", where_place(token.place), kind_name(before->kind),
                                                    print_operand(*before), found_token(token)));
      }
    }
    node.operands.push_back(std::move(operand));
    return Status::ok();
  }

  /// REQUIRES: at_operand().
  Result<WhereOperand> parse_operand() {
    WhereOperand operand;
    operand.place = token_.place;
    if (token_.kind == TokenKind::kNumber) {
      std::optional<Decimal> number = parse_decimal(token_.source);
      if (!number) {
        return unexpected("a number between 1e-9999 and 1e9999");
      }
      operand.kind = WhereKind::kNumber;
      operand.number = number_of(*std::move(number));
    } else if (token_.kind == TokenKind::kText) {
      operand.kind = WhereKind::kText;
      operand.text = token_.text;
    } else if (at_literal()) {
      operand.kind = WhereKind::kBoolean;
      operand.boolean = at_keyword("TRUE");
    } else {
      operand.is_column = true;
      operand.is_quoted = token_.kind == TokenKind::kQuotedColumn;
      operand.text = operand.is_quoted ? token_.text : std::string(token_.source);
      if (operand.text.empty()) {
        return unexpected("a column name between the quotation marks");
      }
    }
    DARKROOM_RETURN_IF_ERROR(advance());
    return operand;
  }

  WhereTokens tokens_;
  WhereToken token_;  // The one that is looked at.
};

std::string quoted_with(char mark, std::string_view text) {
  std::string quoted(1, mark);
  for (const char letter : text) {
    quoted += letter == mark ? std::string(2, mark) : std::string(1, letter);
  }
  return quoted + mark;
}

std::string print_number(const Number& number) {
  const auto* whole = std::get_if<int64_t>(&number);
  return whole != nullptr ? std::to_string(*whole) : print_decimal(std::get<Decimal>(number));
}

void print_node(const WhereNode& node, std::string& text);

/// A part of AND, OR or NOT.
void print_part(const WhereNode& node, NodeKind within, std::string& text) {
  const bool binds_weaker = node.kind == NodeKind::kOr || (node.kind == NodeKind::kAnd && within == NodeKind::kNot);
  text += binds_weaker ? "(" : "";
  print_node(node, text);
  text += binds_weaker ? ")" : "";
}

void print_in(const WhereNode& node, std::string& text) {
  text += node.is_negated ? " NOT IN (" : " IN (";
  for (size_t i = 1; i < node.operands.size(); ++i) {
    text += i > 1 ? ", " : "";
    text += print_operand(node.operands[i]);
  }
  text += ")";
}

void print_node(const WhereNode& node, std::string& text) {
  switch (node.kind) {
    case NodeKind::kAnd:
    case NodeKind::kOr:
      for (size_t i = 0; i < node.children.size(); ++i) {
        text += i == 0 ? "" : node.kind == NodeKind::kAnd ? " AND " : " OR ";
        print_part(node.children[i], node.kind, text);
      }
      return;
    case NodeKind::kNot:
      text += "NOT ";
      print_part(node.children[0], node.kind, text);
      return;
    default:
      text += print_operand(node.operands[0]);
  }
  if (node.kind == NodeKind::kCompare) {
    text += fmt::format(" {} {}", comparison_symbol(node.comparison), print_operand(node.operands[1]));
  } else if (node.kind == NodeKind::kIn) {
    print_in(node, text);
  } else if (node.kind == NodeKind::kLike) {
    text += (node.is_negated ? " NOT LIKE " : " LIKE ") + print_operand(node.operands[1]);
  } else if (node.kind == NodeKind::kIsNull) {
    text += node.is_negated ? " IS NOT NULL" : " IS NULL";
  }
}

}  // namespace

Result<WhereNode> parse_where(std::string_view text) { return WhereParser(text).parse(); }

std::string where_place(size_t place) { return fmt::format("where expression, character {}: ", place); }

std::string print_operand(const WhereOperand& operand) {
  if (operand.is_column) {
    return operand.is_quoted ? quoted_with('"', operand.text) : operand.text;
  }
  if (operand.kind == WhereKind::kNumber) {
    return print_number(operand.number);
  }
  return operand.kind == WhereKind::kText ? quoted_with('\'', operand.text) : operand.boolean ? "TRUE" : "FALSE";
}

std::string print_where(const WhereNode& node) {
  std::string text;
  print_node(node, text);
  return text;
}

}  // namespace darkroom
