#include <arrow/type_traits.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "darkroom/core/typing_mistakes.h"
#include "darkroom/core/utf8.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/tables/where.h"
#include "where_parser.h"
#include "where_tree.h"

namespace darkroom {

namespace {

char lower_letter(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

std::string lower_name(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), lower_letter);
  return lower;
}

const arrow::DataType& value_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::DICTIONARY ? *static_cast<const arrow::DictionaryType&>(type).value_type() : type;
}

/// The names of a schema, those first that are most like `name`.
std::string list_nearest(const arrow::Schema& schema, std::string_view name) {
  constexpr size_t kMostLetters = 64;  // Of a name that are looked at.
  constexpr size_t kMostNames = 40;
  const std::string wanted = lower_name(name.substr(0, kMostLetters));
  std::vector<std::pair<size_t, std::string>> names;
  for (const std::string& other : schema.field_names()) {
    names.emplace_back(typing_mistakes(wanted, lower_name(other).substr(0, kMostLetters)), other);
  }
  std::ranges::stable_sort(names, {}, &std::pair<size_t, std::string>::first);
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    list += (i > 0 ? ", " : "") + names[i].second;
  }
  return names.size() > kMostNames ? fmt::format("{} and {} more", list, names.size() - kMostNames) : list;
}

/// `nearest` to a number, or its neighbour: what half precision has to be rounded from, lest a number beside a tie be rounded to that tie
/// first. Inexact values get an odd last digit (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums: proved algorithms
/// using rounding to odd").
float odd_float(const Number& number, float nearest) {
  const auto order = compare_numbers(number, double{nearest});
  const bool is_even = std::bit_cast<uint32_t>(nearest) % 2 == 0;
  return order == 0 || !is_even ? nearest : std::nextafter(nearest, order < 0 ? -HUGE_VALF : HUGE_VALF);
}

/// What a number of the expression is compared as with a column of this type.
Number as_in_column(const Number& number, const arrow::DataType& column) {
  switch (value_type(column).id()) {
    case arrow::Type::DOUBLE:
      return nearest_or_itself<double>(number);
    case arrow::Type::FLOAT:
      return nearest_or_itself<float>(number);
    case arrow::Type::HALF_FLOAT: {
      const Number nearest = nearest_or_itself<float>(number);
      const auto* value = std::get_if<double>(&nearest);
      const float half = value == nullptr ? 0.0F : float_of_half(half_bits(odd_float(number, static_cast<float>(*value))));
      const bool fits = value != nullptr && half - half == 0.0F && (half != 0.0F || *value == 0.0);  // inf - inf is NaN.
      return fits ? Number(static_cast<double>(half)) : number;
    }
    default:
      return number;
  }
}

bool operand_is_less(const WhereOperand& a, const WhereOperand& b) {
  return a.kind == WhereKind::kNumber ? compare_numbers(a.number, b.number) < 0
         : a.kind == WhereKind::kText ? a.text < b.text
                                      : a.boolean < b.boolean;
}

class WhereBinder {
 public:
  WhereBinder(const arrow::Schema& schema, TableFormat format, std::string_view path) : schema_(schema), format_(format), path_(path) {
    for (int i = 0; i < schema.num_fields(); ++i) {
      places_[lower_name(schema.field(i)->name())].push_back(i);
    }
  }

  Status bind(WhereNode& node) {
    for (WhereNode& child : node.children) {
      DARKROOM_RETURN_IF_ERROR(bind(child));
    }
    for (WhereOperand& operand : node.operands) {
      if (operand.is_column) {
        DARKROOM_RETURN_IF_ERROR(bind_column(operand));
      }
    }
    switch (node.kind) {
      case WhereNode::Kind::kCompare:
      case WhereNode::Kind::kIn:
        return bind_comparison(node);
      case WhereNode::Kind::kLike:
        return require_kind(node.operands[0], WhereKind::kText, "LIKE needs a text");
      case WhereNode::Kind::kIsTrue:
        return require_kind(node.operands[0], WhereKind::kBoolean, "a column alone is a condition only where it is TRUE or FALSE");
      default:
        return Status::ok();
    }
  }

 private:
  Status bind_column(WhereOperand& operand) {
    DARKROOM_ASSIGN_OR_RETURN(const int place, find(operand));
    const arrow::DataType& type = *schema_.field(place)->type();
    operand.text = schema_.field(place)->name();
    operand.kind = has_types(format_) ? kind_of_type(type) : WhereKind::kUntyped;
    operand.may_be_nan = arrow::is_floating(value_type(type).id()) || operand.kind == WhereKind::kUntyped;
    return Status::ok();
  }

  Result<int> find(const WhereOperand& column) const {
    std::vector<int> found = schema_.GetAllFieldIndices(column.text);
    if (const auto places = places_.find(lower_name(column.text)); found.empty() && !column.is_quoted && places != places_.end()) {
      found = places->second;
    }
    if (found.empty()) {
      return Status::not_found(fmt::format(
          "{}{} has no column {}{}; its columns, the nearest name first: {}", where_place(column.place), path_, print_operand(column),
          column.is_quoted ? " (a text stands in single quotation marks)" : "", list_nearest(schema_, column.text)));
    }
    if (found.size() > 1) {
      std::string names;
      for (const int i : found) {
        names += (names.empty() ? "" : ", ") + schema_.field(i)->name();
      }
      return Status::failed_precondition(fmt::format("{}{} stands for {} columns of {} (double quotation marks ask for the exact name): {}",
                                                     where_place(column.place), print_operand(column), found.size(), path_, names));
    }
    return found.front();
  }

  std::string describe(const WhereOperand& operand) const {
    return operand.is_column ? fmt::format("{} ({})", operand.text, schema_.GetFieldByName(operand.text)->type()->ToString())
                             : print_operand(operand);
  }

  Status refuse(const WhereOperand& operand, std::string_view why) const {
    return Status::failed_precondition(fmt::format("{}in {} {}, found: {}", where_place(operand.place), path_, why, describe(operand)));
  }

  Status require_kind(const WhereOperand& operand, WhereKind kind, std::string_view rule) const {
    const bool fits = operand.kind == kind || operand.kind == WhereKind::kUntyped || operand.kind == WhereKind::kNull;
    return fits ? Status::ok() : refuse(operand, rule);
  }

  Status bind_comparison(WhereNode& node) const {
    node.compared_as = WhereKind::kNull;
    const WhereOperand* typed = nullptr;  // The first operand that says as what they are compared.
    for (const WhereOperand& operand : node.operands) {
      if (operand.kind == WhereKind::kOther) {
        return refuse(operand, "of times, lists, structs and the like only IS NULL can be asked");
      }
      if (operand.kind == WhereKind::kNull) {
        continue;
      }
      if (typed == nullptr || typed->kind == WhereKind::kUntyped) {
        typed = &operand;
      } else if (operand.kind != WhereKind::kUntyped && operand.kind != typed->kind) {
        return refuse(operand,
                      fmt::format("{} cannot be compared with {}, {}", kind_name(operand.kind), kind_name(typed->kind), describe(*typed)));
      }
    }
    if (typed != nullptr) {
      node.compared_as = typed->kind == WhereKind::kUntyped ? WhereKind::kText : typed->kind;
      DARKROOM_RETURN_IF_ERROR(check_order(node, *typed));
    }
    round_literals(node);
    if (node.kind == WhereNode::Kind::kIn) {
      std::sort(node.operands.begin() + 1, node.operands.end(), operand_is_less);
    }
    return Status::ok();
  }

  Status check_order(const WhereNode& node, const WhereOperand& typed) const {
    const bool orders = node.kind == WhereNode::Kind::kCompare && node.comparison != WhereComparison::kEqual &&
                        node.comparison != WhereComparison::kNotEqual;
    if (orders && typed.kind == WhereKind::kBoolean) {
      return refuse(typed, "TRUE and FALSE have no order");
    }
    if (orders && typed.kind == WhereKind::kUntyped) {
      return refuse(typed, "columns have no types, so two of them have no order (Parquet has types)");
    }
    return Status::ok();
  }

  void round_literals(WhereNode& node) const {
    for (WhereOperand& operand : node.operands) {
      const WhereOperand& other = &operand == &node.operands[0] ? node.operands[1] : node.operands[0];
      if (!operand.is_column && operand.kind == WhereKind::kNumber && other.is_column) {
        operand.number = as_in_column(operand.number, *schema_.GetFieldByName(other.text)->type());
      }
    }
  }

  const arrow::Schema& schema_;
  TableFormat format_;
  std::string_view path_;
  std::map<std::string, std::vector<int>> places_;  // Of columns by their name in small letters.
};

std::vector<std::string> names_of_columns(const WhereNode& root) {
  std::vector<std::string> names;
  std::set<std::string_view> seen;
  for_each_operand(root, [&](const WhereOperand& operand) {
    if (operand.is_column && seen.insert(operand.text).second) {
      names.push_back(operand.text);
    }
  });
  return names;
}

/// Where a text is no UTF-8; nothing where it is.
std::optional<size_t> first_invalid_byte(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Character character = first_character(text.substr(offset));
    if (!character.is_valid) {
      return offset;
    }
    offset += character.num_bytes;
  }
  return std::nullopt;
}

}  // namespace

std::string_view kind_name(WhereKind kind) {
  switch (kind) {
    case WhereKind::kNumber:
      return "a number";
    case WhereKind::kText:
      return "a text";
    case WhereKind::kBoolean:
      return "TRUE or FALSE";
    case WhereKind::kUntyped:
      return "a column without a type";
    case WhereKind::kNull:
      return "null";
    default:
      return "another value";
  }
}

WhereKind kind_of_type(const arrow::DataType& type) {
  const arrow::Type::type id = value_type(type).id();
  if (arrow::is_integer(id) || arrow::is_floating(id) || arrow::is_decimal(id)) {
    return WhereKind::kNumber;
  }
  if (arrow::is_base_binary_like(id) || arrow::is_binary_view_like(id)) {
    return WhereKind::kText;
  }
  return id == arrow::Type::BOOL ? WhereKind::kBoolean : id == arrow::Type::NA ? WhereKind::kNull : WhereKind::kOther;
}

void for_each_operand(const WhereNode& node, const std::function<void(const WhereOperand&)>& visit) {
  for (const WhereNode& child : node.children) {
    for_each_operand(child, visit);
  }
  for (const WhereOperand& operand : node.operands) {
    visit(operand);
  }
}

Result<WhereExpression> WhereExpression::parse(std::string_view text) {
  if (text.size() > kMaxBytes) {
    return Status::invalid_argument(fmt::format("where expression: it may have {} bytes, found: {}", kMaxBytes, text.size()));
  }
  if (const auto offset = first_invalid_byte(text)) {
    return Status::invalid_argument(
        fmt::format("where expression, byte {}: expected UTF-8, found: 0x{:02X}", *offset + 1, static_cast<unsigned char>(text[*offset])));
  }
  DARKROOM_ASSIGN_OR_RETURN(WhereNode root, parse_where(text));
  WhereExpression expression;
  expression.canonical_ = print_where(root);
  expression.root_ = std::make_shared<const WhereNode>(std::move(root));
  if (expression.canonical_.size() > kMaxBytes) {
    return Status::invalid_argument(
        fmt::format("where expression: with single spaces it may have {} bytes, found: {}", kMaxBytes, expression.canonical_.size()));
  }
  return expression;
}

std::vector<std::string> WhereExpression::columns() const { return names_of_columns(*root_); }

Result<RowFilter> WhereExpression::bind(const arrow::Schema& schema, TableFormat format, std::string_view path) const {
  WhereNode root = *root_;
  DARKROOM_RETURN_IF_ERROR(WhereBinder(schema, format, path).bind(root));
  RowFilter filter;
  filter.columns_ = names_of_columns(root);
  filter.root_ = std::make_shared<const WhereNode>(std::move(root));
  return filter;
}

}  // namespace darkroom
