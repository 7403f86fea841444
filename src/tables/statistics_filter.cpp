#include "darkroom/tables/statistics_filter.h"

#include <algorithm>
#include <array>

#include "darkroom/tables/where.h"
#include "where_tree.h"

namespace darkroom {

namespace {

/// Which truths a condition may have in the rows of a group. May hold more than there are, never fewer.
struct Outcomes {
  bool may_be_false = false;
  bool may_be_unknown = false;
  bool may_be_true = false;

  void add(bool truth) { (truth ? may_be_true : may_be_false) = true; }
};

/// A value that operands are compared by; which member counts is the condition's kind.
struct Bound {
  Number number;
  std::string_view text;
  bool boolean = false;
};

/// What an operand may be in the rows of a group. A bound that is not there is unknown.
struct Span {
  std::optional<Bound> least;
  std::optional<Bound> greatest;
  bool may_be_null = true;
  bool may_be_value = true;
  bool may_be_nan = false;
};

/// Nothing where the bound is of another kind.
std::optional<Bound> bound_of(const std::optional<BoundValue>& value, WhereKind kind) {
  if (!value) {
    return std::nullopt;
  }
  Bound bound;
  if (const auto* text = std::get_if<std::string>(&*value)) {
    bound.text = *text;
    return kind == WhereKind::kText ? std::optional(bound) : std::nullopt;
  }
  if (const auto* boolean = std::get_if<bool>(&*value)) {
    bound.boolean = *boolean;
    return kind == WhereKind::kBoolean ? std::optional(bound) : std::nullopt;
  }
  if (const auto* whole = std::get_if<int64_t>(&*value)) {
    bound.number = *whole;
  } else if (const auto* natural = std::get_if<uint64_t>(&*value)) {
    bound.number = *natural;
  } else {
    bound.number = std::get<double>(*value);
  }
  return kind == WhereKind::kNumber ? std::optional(bound) : std::nullopt;
}

bool is_nan_bound(const std::optional<BoundValue>& value) {
  const auto* number = value ? std::get_if<double>(&*value) : nullptr;
  return number != nullptr && *number != *number;
}

std::partial_ordering compare_bounds(const Bound& a, const Bound& b, WhereKind kind) {
  switch (kind) {
    case WhereKind::kNumber:
      return compare_numbers(a.number, b.number);
    case WhereKind::kText:
      return a.text <=> b.text;
    default:
      return a.boolean <=> b.boolean;
  }
}

/// Whether `a COMPARISON b` may hold of two bounds: certainly where one is unknown.
bool may_hold(WhereComparison comparison, const std::optional<Bound>& a, const std::optional<Bound>& b, WhereKind kind) {
  return !a || !b || comparison_holds(comparison, compare_bounds(*a, *b, kind));
}

/// The orders that a value of one span and one of another may have.
std::array<std::pair<std::partial_ordering, bool>, 3> possible_orders(const Span& a, const Span& b, WhereKind kind) {
  const bool may_be_equal = may_hold(WhereComparison::kLessOrEqual, a.least, b.greatest, kind) &&
                            may_hold(WhereComparison::kGreaterOrEqual, a.greatest, b.least, kind);
  return {{{std::partial_ordering::less, may_hold(WhereComparison::kLess, a.least, b.greatest, kind)},
           {std::partial_ordering::equivalent, may_be_equal},
           {std::partial_ordering::greater, may_hold(WhereComparison::kGreater, a.greatest, b.least, kind)}}};
}

/// The part of a pattern in front of its first wildcard.
std::string_view literal_prefix(std::string_view pattern) { return pattern.substr(0, pattern.find_first_of("%_")); }

class StatisticsReader {
 public:
  explicit StatisticsReader(const RowGroupStatistics& group) : group_(group) {}

  Outcomes outcomes(const WhereNode& node) const {
    switch (node.kind) {
      case WhereNode::Kind::kAnd:
      case WhereNode::Kind::kOr:
        return joined(node);
      case WhereNode::Kind::kNot: {
        Outcomes inner = outcomes(node.children[0]);
        std::swap(inner.may_be_false, inner.may_be_true);
        return inner;
      }
      case WhereNode::Kind::kCompare:
        return of_comparison(node);
      case WhereNode::Kind::kIn:
        return of_in(node);
      case WhereNode::Kind::kLike:
        return of_like(node);
      case WhereNode::Kind::kIsNull:
        return of_is_null(node);
      default:
        return of_is_true(node);
    }
  }

 private:
  Outcomes joined(const WhereNode& node) const {
    Outcomes all = outcomes(node.children[0]);
    for (size_t i = 1; i < node.children.size(); ++i) {
      const Outcomes part = outcomes(node.children[i]);
      // AND: true where both are, false where one is, unknown where one is and none is false. OR: the other way round.
      const bool both_may_be_true = all.may_be_true && part.may_be_true;
      const bool both_may_be_false = all.may_be_false && part.may_be_false;
      if (node.kind == WhereNode::Kind::kAnd) {
        all = {
            .may_be_false = all.may_be_false || part.may_be_false,
            .may_be_unknown = (all.may_be_unknown && (part.may_be_unknown || part.may_be_true)) || (part.may_be_unknown && all.may_be_true),
            .may_be_true = both_may_be_true};
      } else {
        all = {.may_be_false = both_may_be_false,
               .may_be_unknown =
                   (all.may_be_unknown && (part.may_be_unknown || part.may_be_false)) || (part.may_be_unknown && all.may_be_false),
               .may_be_true = all.may_be_true || part.may_be_true};
      }
    }
    return all;
  }

  Span span_of(const WhereOperand& operand, WhereKind kind) const {
    if (!operand.is_column) {
      const Bound value{operand.number, operand.text, operand.boolean};
      return {.least = value, .greatest = value, .may_be_null = false, .may_be_value = true, .may_be_nan = false};
    }
    Span span;
    span.may_be_nan = operand.may_be_nan;
    span.may_be_value = operand.kind != WhereKind::kNull;
    const auto found = group_.columns.find(operand.text);
    if (found == group_.columns.end() || operand.kind == WhereKind::kNull || operand.kind == WhereKind::kUntyped) {
      return span;  // A cell of a text table counts as null where it is no number, whatever the statistics call null.
    }
    const ColumnStatistics& column = found->second;
    if (column.num_nulls && *column.num_nulls >= 0 && *column.num_nulls <= group_.num_rows) {
      span.may_be_null = *column.num_nulls > 0;
      span.may_be_value = *column.num_nulls < group_.num_rows;
    }
    if (is_nan_bound(column.min) || is_nan_bound(column.max)) {
      return span;  // Whoever made them has compared with NaN, so the other one need not bound anything.
    }
    span.least = bound_of(column.min, kind);
    span.greatest = bound_of(column.max, kind);
    if (span.least && span.greatest && compare_bounds(*span.least, *span.greatest, kind) > 0) {
      span.least.reset();
      span.greatest.reset();
    }
    return span;
  }

  Outcomes of_comparison(const WhereNode& node) const {
    const Span left = span_of(node.operands[0], node.compared_as);
    const Span right = span_of(node.operands[1], node.compared_as);
    Outcomes result;
    result.may_be_unknown = left.may_be_null || right.may_be_null;
    if (left.may_be_value && right.may_be_value) {
      for (const auto& [order, is_possible] : possible_orders(left, right, node.compared_as)) {
        if (is_possible) {
          result.add(comparison_holds(node.comparison, order));
        }
      }
      result.may_be_false |= left.may_be_nan || right.may_be_nan;
    }
    return result;
  }

  Outcomes of_in(const WhereNode& node) const {
    const Span left = span_of(node.operands[0], node.compared_as);
    Outcomes result;
    result.may_be_unknown = left.may_be_null;
    if (!left.may_be_value) {
      return result;
    }
    bool may_be_in = false;
    bool may_be_out = true;
    for (size_t i = 1; i < node.operands.size(); ++i) {
      const auto orders = possible_orders(left, span_of(node.operands[i], node.compared_as), node.compared_as);
      const bool may_be_equal = orders[1].second;
      may_be_in |= may_be_equal;
      may_be_out &= !may_be_equal || orders[0].second || orders[2].second;  // Nothing but this value: never outside.
    }
    if (may_be_in) {
      result.add(!node.is_negated);
    }
    if (may_be_out) {
      result.add(node.is_negated);
    }
    result.may_be_false |= left.may_be_nan;
    return result;
  }

  Outcomes of_like(const WhereNode& node) const {
    const Span left = span_of(node.operands[0], WhereKind::kText);
    Outcomes result;
    result.may_be_unknown = left.may_be_null;
    if (!left.may_be_value) {
      return result;
    }
    const std::string_view pattern = node.operands[1].text;
    const std::string_view prefix = literal_prefix(pattern);
    const bool all_begin_so =
        left.least && left.greatest && left.least->text.starts_with(prefix) && left.greatest->text.starts_with(prefix);
    const bool lies_below = left.greatest && left.greatest->text < prefix;
    const bool lies_above = left.least && left.least->text > prefix && !left.least->text.starts_with(prefix);
    const bool is_prefix_and_percent =
        pattern.size() > prefix.size() && pattern.find_first_not_of('%', prefix.size()) == std::string_view::npos;
    if (!lies_below && !lies_above) {
      result.add(!node.is_negated);
    }
    if (!all_begin_so || !is_prefix_and_percent) {
      result.add(node.is_negated);
    }
    return result;
  }

  Outcomes of_is_null(const WhereNode& node) const {
    const WhereOperand& operand = node.operands[0];
    const Span left = span_of(operand, operand.kind);
    Outcomes result;
    if (left.may_be_null) {
      result.add(!node.is_negated);
    }
    if (left.may_be_value) {
      result.add(node.is_negated);
    }
    return result;
  }

  Outcomes of_is_true(const WhereNode& node) const {
    const Span left = span_of(node.operands[0], WhereKind::kBoolean);
    Outcomes result;
    result.may_be_unknown = left.may_be_null;
    if (left.may_be_value) {
      result.may_be_true = !left.greatest || left.greatest->boolean;
      result.may_be_false = !left.least || !left.least->boolean;
    }
    return result;
  }

  const RowGroupStatistics& group_;
};

}  // namespace

Reach RowFilter::reach(const RowGroupStatistics& group) const {
  if (group.num_rows == 0) {
    return Reach::kNone;
  }
  const Outcomes outcomes = StatisticsReader(group).outcomes(*root_);
  if (!outcomes.may_be_true) {
    return Reach::kNone;
  }
  return outcomes.may_be_false || outcomes.may_be_unknown ? Reach::kSome : Reach::kAll;
}

}  // namespace darkroom
