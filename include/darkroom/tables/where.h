#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tables/statistics_filter.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

struct WhereNode;  // src/tables/where_tree.h

/// Which rows a WhereExpression keeps of the tables of one schema. A value. Thread safety: immutable, any thread.
///
/// SQL's three-valued logic: a comparison with null is unknown, and only rows for which the whole is true are kept.
/// Numbers are compared by their exact values, whatever their types; only a number of the expression is first rounded to
/// the type of a floating-point column that it is compared with, so that 0.1 finds a stored 0.1. NaN makes every comparison
/// false, != and NOT IN too. Texts are compared by their bytes.
class RowFilter {
 public:
  /// The names in the schema of the columns that evaluate() needs, each once, in the order of the expression. May be empty.
  const std::vector<std::string>& columns() const { return columns_; }

  /// Sets keep[row] to 1 or 0 for every row of `batch`, which holds columns() and perhaps others.
  /// Errors: kCorruptData where the batch lacks a column or holds it in a type of another kind than the schema.
  Status evaluate(const arrow::RecordBatch& batch, std::vector<uint8_t>& keep) const;

  /// Never kNone for a group of which evaluate() keeps a row, never kAll for one of which it drops a row, provided that the
  /// statistics are true.
  Reach reach(const RowGroupStatistics& group) const;

 private:
  friend class WhereExpression;
  RowFilter() = default;

  std::shared_ptr<const WhereNode> root_;  // Shared by copies; immutable.
  std::vector<std::string> columns_;
};

/// A condition on the columns of a table: `punsafe < 0.1 AND aesthetic >= 4.5`. A value. Thread safety: immutable.
///
///   expression := and (OR and)*
///   and        := not (AND not)*
///   not        := NOT not | condition
///   condition  := ( expression ) | operand = operand (and != <> < <= > >=) | operand [NOT] IN ( literal, ... )
///               | operand [NOT] LIKE 'pattern' | operand IS [NOT] NULL | column | TRUE | FALSE
///   operand    := column | literal
///   literal    := number | 'text' | TRUE | FALSE
///   column     := name | "name"
///
/// Keywords in any letter case. A name without quotation marks is letters, digits and _ and finds a column in any letter
/// case, one in double quotation marks only its exact name. A quotation mark inside of its own kind is written twice. A
/// pattern's % stands for any text, its _ for one character. A column alone is a condition where it is boolean.
class WhereExpression {
 public:
  static constexpr size_t kMaxBytes = 64 << 10;  ///< Of the text, and of the canonical form.
  static constexpr int kMaxDepth = 64;           ///< Of parentheses and NOTs in each other.

  /// Errors: kInvalidArgument with the place (characters from 1), what was expected and what was found.
  static Result<WhereExpression> parse(std::string_view text);

  /// One text for all ways to write the same conditions in the same order: keywords in capitals, single spaces, no needless
  /// parentheses, numbers in their shortest form. Parses to itself.
  const std::string& canonical() const { return canonical_; }

  /// The names as they were written, each once, in the order of the text.
  std::vector<std::string> columns() const;

  /// Finds the columns and checks that what is compared can be. `format` says whether the columns have types: in a text
  /// table each column is text, which counts as a number, or as true or false, where it is compared with one (and as null
  /// where it is none). `path` is for messages.
  /// Errors, with the place: kNotFound, listing the columns that exist; kFailedPrecondition where a name stands for several
  /// columns, or values that cannot be compared.
  Result<RowFilter> bind(const arrow::Schema& schema, TableFormat format, std::string_view path) const;

 private:
  WhereExpression() = default;

  std::shared_ptr<const WhereNode> root_;  // Shared by copies; immutable.
  std::string canonical_;
};

}  // namespace darkroom
