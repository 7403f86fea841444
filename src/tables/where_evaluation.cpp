#include <arrow/array.h>

#include <algorithm>
#include <optional>

#include "darkroom/tables/tensor_column.h"
#include "darkroom/tables/where.h"
#include "where_tree.h"

namespace darkroom {

namespace {

/// In this order AND is the least, OR the greatest, and NOT turns it round.
enum class Truth : uint8_t { kFalse, kUnknown, kTrue };
using Truths = std::vector<Truth>;  // Of each row.

Truth truth_of(bool holds) { return holds ? Truth::kTrue : Truth::kFalse; }
Truth opposite(Truth truth) { return truth == Truth::kUnknown ? truth : truth_of(truth == Truth::kFalse); }

/// A dictionary's place of a row's value; of other arrays the row itself.
std::pair<const arrow::Array*, int64_t> find_value(const arrow::Array& array, int64_t row) {
  if (array.type_id() != arrow::Type::DICTIONARY || array.IsNull(row)) {
    return {&array, row};
  }
  const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
  return {dictionary.dictionary().get(), dictionary.GetValueIndex(row)};
}

bool is_null_at(const arrow::Array& array, int64_t row) {
  const auto [values, place] = find_value(array, row);
  return values->IsNull(place);
}

template <typename Array>
const Array& array_as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

/// REQUIRES: a column of numbers that is not null at `row`, no dictionary.
Number number_at(const arrow::Array& array, int64_t row) {
  switch (array.type_id()) {
    case arrow::Type::INT8:
      return int64_t{array_as<arrow::Int8Array>(array).Value(row)};
    case arrow::Type::INT16:
      return int64_t{array_as<arrow::Int16Array>(array).Value(row)};
    case arrow::Type::INT32:
      return int64_t{array_as<arrow::Int32Array>(array).Value(row)};
    case arrow::Type::INT64:
      return array_as<arrow::Int64Array>(array).Value(row);
    case arrow::Type::UINT8:
      return int64_t{array_as<arrow::UInt8Array>(array).Value(row)};
    case arrow::Type::UINT16:
      return int64_t{array_as<arrow::UInt16Array>(array).Value(row)};
    case arrow::Type::UINT32:
      return int64_t{array_as<arrow::UInt32Array>(array).Value(row)};
    case arrow::Type::UINT64:
      return array_as<arrow::UInt64Array>(array).Value(row);
    case arrow::Type::HALF_FLOAT:
      return double{float_of_half(array_as<arrow::HalfFloatArray>(array).Value(row))};
    case arrow::Type::FLOAT:
      return double{array_as<arrow::FloatArray>(array).Value(row)};
    case arrow::Type::DOUBLE:
      return array_as<arrow::DoubleArray>(array).Value(row);
    case arrow::Type::DECIMAL32:
      return number_of(parse_decimal(array_as<arrow::Decimal32Array>(array).FormatValue(row)).value());
    case arrow::Type::DECIMAL64:
      return number_of(parse_decimal(array_as<arrow::Decimal64Array>(array).FormatValue(row)).value());
    case arrow::Type::DECIMAL128:
      return number_of(parse_decimal(array_as<arrow::Decimal128Array>(array).FormatValue(row)).value());
    default:
      return number_of(parse_decimal(array_as<arrow::Decimal256Array>(array).FormatValue(row)).value());
  }
}

/// REQUIRES: a column of texts that is not null at `row`, no dictionary.
std::string_view text_at(const arrow::Array& array, int64_t row) {
  switch (array.type_id()) {
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return array_as<arrow::LargeBinaryArray>(array).GetView(row);
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
      return array_as<arrow::BinaryViewArray>(array).GetView(row);
    default:
      return array_as<arrow::BinaryArray>(array).GetView(row);
  }
}

std::optional<bool> parse_boolean_cell(std::string_view text) {
  const auto is = [text](std::string_view word) { return std::ranges::equal(text, word, [](char a, char b) { return (a | 0x20) == b; }); };
  return is("true") ? std::optional(true) : is("false") ? std::optional(false) : std::nullopt;
}

/// The values of one operand; a null pointer stands for a literal.
struct OperandReader {
  const WhereOperand& operand;
  const arrow::Array* array;

  bool is_null(int64_t row) const { return array != nullptr && is_null_at(*array, row); }

  std::optional<Number> number(int64_t row) const {
    if (array == nullptr) {
      return operand.number;
    }
    const auto [values, place] = find_value(*array, row);
    if (values->IsNull(place)) {
      return std::nullopt;
    }
    return operand.kind == WhereKind::kUntyped ? parse_number_cell(text_at(*values, place)) : std::optional(number_at(*values, place));
  }

  std::optional<std::string_view> text(int64_t row) const {
    if (array == nullptr) {
      return operand.text;
    }
    const auto [values, place] = find_value(*array, row);
    return values->IsNull(place) ? std::nullopt : std::optional(text_at(*values, place));
  }

  std::optional<bool> boolean(int64_t row) const {
    if (array == nullptr) {
      return operand.boolean;
    }
    const auto [values, place] = find_value(*array, row);
    if (values->IsNull(place)) {
      return std::nullopt;
    }
    return operand.kind == WhereKind::kUntyped ? parse_boolean_cell(text_at(*values, place))
                                               : std::optional(array_as<arrow::BooleanArray>(*values).Value(place));
  }
};

/// What an operation says of each row's value; unknown where there is none.
template <typename Read, typename Holds>
Truths ask_rows(int64_t num_rows, const Read& read, const Holds& holds) {
  Truths truths(static_cast<size_t>(num_rows), Truth::kUnknown);
  for (int64_t row = 0; row < num_rows; ++row) {
    if (const auto value = read(row)) {
      truths[static_cast<size_t>(row)] = truth_of(holds(*value, row));
    }
  }
  return truths;
}

/// The same for two operands that `read` reads. `compare` gives their order.
template <typename Read, typename Compare>
Truths compare_rows(int64_t num_rows, WhereComparison comparison, const OperandReader& left, const OperandReader& right, const Read& read,
                    const Compare& compare) {
  Truths truths(static_cast<size_t>(num_rows), Truth::kUnknown);
  for (int64_t row = 0; row < num_rows; ++row) {
    const auto a = read(left, row);
    const auto b = read(right, row);
    if (a && b) {
      truths[static_cast<size_t>(row)] = truth_of(comparison_holds(comparison, compare(*a, *b)));
    }
  }
  return truths;
}

bool is_in_list(const WhereNode& node, const Number& value) {
  const auto found = std::lower_bound(node.operands.begin() + 1, node.operands.end(), value,
                                      [](const WhereOperand& one, const Number& other) { return compare_numbers(one.number, other) < 0; });
  return found != node.operands.end() && compare_numbers(found->number, value) == 0;
}

bool is_in_list(const WhereNode& node, std::string_view value) {
  const auto found = std::lower_bound(node.operands.begin() + 1, node.operands.end(), value,
                                      [](const WhereOperand& one, std::string_view other) { return one.text < other; });
  return found != node.operands.end() && found->text == value;
}

bool is_in_list(const WhereNode& node, bool value) {
  return std::any_of(node.operands.begin() + 1, node.operands.end(), [value](const WhereOperand& one) { return one.boolean == value; });
}

bool is_nan(const Number& number) {
  const auto* value = std::get_if<double>(&number);
  return value != nullptr && *value != *value;
}

class WhereEvaluator {
 public:
  explicit WhereEvaluator(const arrow::RecordBatch& batch) : batch_(batch) {}

  Result<Truths> evaluate(const WhereNode& node) const {
    switch (node.kind) {
      case WhereNode::Kind::kAnd:
      case WhereNode::Kind::kOr:
        return evaluate_joined(node);
      case WhereNode::Kind::kNot: {
        DARKROOM_ASSIGN_OR_RETURN(Truths truths, evaluate(node.children[0]));
        std::ranges::transform(truths, truths.begin(), opposite);
        return truths;
      }
      default:
        break;
    }
    std::vector<OperandReader> readers;
    for (const WhereOperand& operand : node.operands) {
      DARKROOM_ASSIGN_OR_RETURN(const arrow::Array* array, find_array(operand));
      readers.push_back({operand, array});
      if (node.kind == WhereNode::Kind::kIn) {
        break;  // The list holds literals.
      }
    }
    return evaluate_condition(node, readers);
  }

 private:
  Result<Truths> evaluate_joined(const WhereNode& node) const {
    DARKROOM_ASSIGN_OR_RETURN(Truths truths, evaluate(node.children[0]));
    for (size_t i = 1; i < node.children.size(); ++i) {
      DARKROOM_ASSIGN_OR_RETURN(const Truths part, evaluate(node.children[i]));
      for (size_t row = 0; row < truths.size(); ++row) {
        truths[row] = node.kind == WhereNode::Kind::kAnd ? std::min(truths[row], part[row]) : std::max(truths[row], part[row]);
      }
    }
    return truths;
  }

  /// A null pointer for a literal.
  Result<const arrow::Array*> find_array(const WhereOperand& operand) const {
    if (!operand.is_column) {
      return static_cast<const arrow::Array*>(nullptr);
    }
    const std::vector<int> places = batch_.schema()->GetAllFieldIndices(operand.text);
    if (places.size() != 1) {
      return Status::corrupt_data("where expression: a batch should hold one column of this name (columns, name):", places.size(),
                                  operand.text);
    }
    const arrow::Array* array = batch_.column_data(places[0]) == nullptr ? nullptr : batch_.column(places[0]).get();
    const WhereKind wanted = operand.kind == WhereKind::kUntyped ? WhereKind::kText : operand.kind;
    if (array == nullptr || kind_of_type(*array->type()) != wanted) {
      return Status::corrupt_data("where expression: a batch holds a column in another type than its file's schema (column, type):",
                                  operand.text, batch_.schema()->field(places[0])->type()->ToString());
    }
    return array;
  }

  Truths evaluate_condition(const WhereNode& node, const std::vector<OperandReader>& readers) const {
    const OperandReader& left = readers[0];
    switch (node.kind) {
      case WhereNode::Kind::kCompare:
        return evaluate_comparison(node, left, readers[1]);
      case WhereNode::Kind::kIn:
        return evaluate_in(node, left);
      case WhereNode::Kind::kLike:
        if (left.operand.kind == WhereKind::kNull) {
          return all_unknown();
        }
        return ask_rows(
            batch_.num_rows(), [&left](int64_t row) { return left.text(row); },
            [&node](std::string_view text, int64_t /*row*/) { return is_like(text, node.operands[1].text) != node.is_negated; });
      case WhereNode::Kind::kIsNull:
        return ask_rows(
            batch_.num_rows(), [&left](int64_t row) { return std::optional(left.is_null(row)); },
            [&node](bool is_null, int64_t /*row*/) { return is_null != node.is_negated; });
      default:
        if (left.operand.kind == WhereKind::kNull) {
          return all_unknown();
        }
        return ask_rows(
            batch_.num_rows(), [&left](int64_t row) { return left.boolean(row); }, [](bool value, int64_t /*row*/) { return value; });
    }
  }

  Truths evaluate_comparison(const WhereNode& node, const OperandReader& left, const OperandReader& right) const {
    if (left.operand.kind == WhereKind::kNull || right.operand.kind == WhereKind::kNull) {
      return all_unknown();
    }
    switch (node.compared_as) {
      case WhereKind::kNumber:
        return compare_rows(
            batch_.num_rows(), node.comparison, left, right, [](const OperandReader& reader, int64_t row) { return reader.number(row); },
            compare_numbers);
      case WhereKind::kText:
        return compare_rows(
            batch_.num_rows(), node.comparison, left, right, [](const OperandReader& reader, int64_t row) { return reader.text(row); },
            [](std::string_view a, std::string_view b) -> std::partial_ordering { return a <=> b; });
      default:
        return compare_rows(
            batch_.num_rows(), node.comparison, left, right, [](const OperandReader& reader, int64_t row) { return reader.boolean(row); },
            [](bool a, bool b) -> std::partial_ordering { return a <=> b; });
    }
  }

  Truths evaluate_in(const WhereNode& node, const OperandReader& left) const {
    if (left.operand.kind == WhereKind::kNull) {
      return all_unknown();
    }
    const auto holds = [&node](const auto& value, int64_t /*row*/) { return is_in_list(node, value) != node.is_negated; };
    switch (node.compared_as) {
      case WhereKind::kNumber:
        return ask_rows(
            batch_.num_rows(), [&left](int64_t row) { return left.number(row); },
            [&holds](const Number& value, int64_t row) { return !is_nan(value) && holds(value, row); });
      case WhereKind::kText:
        return ask_rows(
            batch_.num_rows(), [&left](int64_t row) { return left.text(row); }, holds);
      default:
        return ask_rows(
            batch_.num_rows(), [&left](int64_t row) { return left.boolean(row); }, holds);
    }
  }

  Truths all_unknown() const { return Truths(static_cast<size_t>(batch_.num_rows()), Truth::kUnknown); }

  const arrow::RecordBatch& batch_;
};

/// Bytes of the character at the start of `text`. Bytes that are no UTF-8 are characters of four bytes at most, lest a pattern that
/// is tried at each of them read all of them each time.
size_t character_length(std::string_view text) {
  size_t length = 1;
  while (length < std::min<size_t>(4, text.size()) && (text[length] & 0xC0) == 0x80) {
    ++length;
  }
  return length;
}

}  // namespace

bool comparison_holds(WhereComparison comparison, std::partial_ordering order) {
  if (order == std::partial_ordering::unordered) {
    return false;
  }
  switch (comparison) {
    case WhereComparison::kEqual:
      return order == 0;
    case WhereComparison::kNotEqual:
      return order != 0;
    case WhereComparison::kLess:
      return order < 0;
    case WhereComparison::kLessOrEqual:
      return order <= 0;
    case WhereComparison::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

bool is_like(std::string_view text, std::string_view pattern) {
  size_t at = 0;
  size_t in_pattern = 0;
  size_t behind_percent = std::string_view::npos;  // In the pattern: behind the last % that was met. Only the last has to be tried anew.
  size_t tried = 0;                                // In the text: where what follows this % was tried.
  while (at < text.size()) {
    if (in_pattern < pattern.size() && pattern[in_pattern] == '%') {
      behind_percent = ++in_pattern;
      tried = at;
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == '_') {
      at += character_length(text.substr(at));
      ++in_pattern;
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == text[at]) {
      ++at;
      ++in_pattern;
    } else if (behind_percent != std::string_view::npos) {
      in_pattern = behind_percent;
      at = ++tried;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('%', in_pattern) == std::string_view::npos;
}

Status RowFilter::evaluate(const arrow::RecordBatch& batch, std::vector<uint8_t>& keep) const {
  DARKROOM_ASSIGN_OR_RETURN(const Truths truths, WhereEvaluator(batch).evaluate(*root_));
  keep.resize(truths.size());
  std::ranges::transform(truths, keep.begin(), [](Truth truth) { return truth == Truth::kTrue ? uint8_t{1} : uint8_t{0}; });
  return Status::ok();
}

}  // namespace darkroom
