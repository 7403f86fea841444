#pragma once

#include <arrow/type.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/status.h"
#include "exact_number.h"

namespace darkroom {

/// As what values are compared.
enum class WhereKind {
  kNumber,
  kText,
  kBoolean,
  kUntyped,  ///< A column of a text table: whatever it is compared with.
  kNull,     ///< A column that holds nothing but null.
  kOther,    ///< Times, lists and so on, of which only IS NULL can be asked.
};

/// A column or a literal.
struct WhereOperand {
  bool is_column = false;
  bool is_quoted = false;              ///< The column's name stood in double quotation marks.
  WhereKind kind = WhereKind::kOther;  ///< Of a column, once it is bound.
  bool may_be_nan = false;             ///< Of a column, once it is bound.
  std::string text;                    ///< The name (once it is bound: the schema's), or the text.
  Number number;
  bool boolean = false;
  size_t place = 0;  ///< Characters from 1.
};

enum class WhereComparison { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

/// A node of an expression. After parse() columns are as they were written; bind() makes a copy in which they are the
/// schema's and literals have the type that they are compared as.
struct WhereNode {
  enum class Kind { kAnd, kOr, kNot, kCompare, kIn, kLike, kIsNull, kIsTrue };
  Kind kind = Kind::kIsTrue;
  bool is_negated = false;  ///< NOT IN, NOT LIKE, IS NOT NULL.
  WhereComparison comparison = WhereComparison::kEqual;
  WhereKind compared_as = WhereKind::kNull;  ///< Of kCompare and kIn, once bound.
  std::vector<WhereNode> children;           ///< Of kAnd, kOr (two or more, none of the same kind), kNot (one).
  std::vector<WhereOperand> operands;        ///< Of the others: the left one, then what it is compared with.
};

/// The beginning of every message: "where expression, character 7: ".
std::string where_place(size_t place);

/// A literal or a column as it is written.
std::string print_operand(const WhereOperand& operand);

std::string print_where(const WhereNode& node);

/// How a value of this kind is called in a message: "a number".
std::string_view kind_name(WhereKind kind);

/// Of a column of a typed table.
WhereKind kind_of_type(const arrow::DataType& type);

/// Calls `visit` with every operand of the tree, in the order of the text.
void for_each_operand(const WhereNode& node, const std::function<void(const WhereOperand&)>& visit);

/// Whether `a COMPARISON b` holds for values in this order. Unordered: never.
bool comparison_holds(WhereComparison comparison, std::partial_ordering order);

/// Whether a text is like a pattern in which % stands for any text and _ for one character (a byte and the UTF-8
/// continuation bytes behind it). Takes at most the product of both lengths.
bool is_like(std::string_view text, std::string_view pattern);

}  // namespace darkroom
