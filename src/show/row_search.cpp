#include "row_search.h"

#include <arrow/scalar.h>
#include <arrow/type_traits.h>

#include <algorithm>
#include <charconv>

#include "darkroom/core/ascii_case.h"
#include "darkroom/tables/bytes_column.h"

namespace darkroom {
namespace {

bool is_searched(const arrow::Field& field, const TableKind& kind) {
  const bool is_tensor = std::ranges::any_of(kind.tensors, [&](const TensorColumnName& one) { return one.name == field.name(); });
  const arrow::Type::type id = field.type()->id();
  const bool is_raw = id == arrow::Type::BINARY || id == arrow::Type::LARGE_BINARY || id == arrow::Type::FIXED_SIZE_BINARY;
  return field.name() != kind.image && !is_tensor && !is_raw && !arrow::is_nested(id);
}

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = !text.empty() && failure == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

/// A column's rows as lower-case text; "" of null.
Result<std::vector<std::string>> texts_of(const arrow::RecordBatch& batch, int column, const std::string& path) {
  const auto array = batch.column(column);
  const auto bytes = BytesColumn::open(path, batch.schema()->field(column)->name(), array);
  std::vector<std::string> texts;
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    if (array->IsNull(row)) {
      texts.emplace_back();
      continue;
    }
    if (bytes.is_ok()) {
      texts.push_back(ascii_lower(std::string(bytes->at(row).value_or(""))));
      continue;
    }
    const auto scalar = array->GetScalar(row);
    if (!scalar.ok()) {
      return Status::corrupt_data("a value cannot be read (path, column, reason):", path, batch.schema()->field(column)->name(),
                                  scalar.status().ToString());
    }
    texts.push_back(ascii_lower((*scalar)->ToString()));
  }
  return texts;
}

}  // namespace

RowSearch::RowSearch(std::string_view words, const arrow::Schema& schema, const TableKind& kind) {
  for (const auto& field : schema.fields()) {
    if (is_searched(*field, kind) && std::ranges::find(columns_, field->name()) == columns_.end()) {
      columns_.push_back(field->name());
    }
  }
  constexpr std::string_view kBlanks = " \t\r\n";
  for (size_t at = words.find_first_not_of(kBlanks); at != words.npos; at = words.find_first_not_of(kBlanks, at)) {
    const size_t end = std::min(words.size(), words.find_first_of(kBlanks, at));
    const std::string word = ascii_lower(std::string(words.substr(at, end - at)));
    if (const auto comparison = comparison_of(word)) {
      comparisons_.push_back(*comparison);
    } else {
      words_.push_back(word);
    }
    at = end;
  }
}

std::optional<RowSearch::Comparison> RowSearch::comparison_of(std::string_view word) const {
  const size_t at = word.find_first_of("<=>");
  const auto limit = at == word.npos ? std::nullopt : parse_number(word.substr(at + 1));
  const auto column =
      std::ranges::find_if(columns_, [&](const std::string& name) { return limit.has_value() && ascii_lower(name) == word.substr(0, at); });
  if (column == columns_.end()) {
    return std::nullopt;
  }
  return Comparison{.column = static_cast<size_t>(column - columns_.begin()), .way = word[at], .limit = *limit};
}

bool RowSearch::fits(const std::vector<std::string>& cells) const {
  const bool are_met = std::ranges::all_of(comparisons_, [&](const Comparison& one) {
    const auto number = parse_number(cells[one.column]);
    return number.has_value() && (one.way == '<' ? *number < one.limit : one.way == '>' ? *number > one.limit : *number == one.limit);
  });
  return are_met && std::ranges::all_of(words_, [&](const std::string& word) {
           return std::ranges::any_of(cells, [&](const std::string& cell) { return cell.find(word) != cell.npos; });
         });
}

Result<std::vector<int64_t>> RowSearch::find(const arrow::RecordBatch& batch, const std::string& path) const {
  std::vector<std::vector<std::string>> columns;
  for (int column = 0; column < batch.num_columns(); ++column) {
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), texts_of(batch, column, path));
  }
  std::vector<int64_t> found;
  std::vector<std::string> cells(columns.size());
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    for (size_t column = 0; column < columns.size(); ++column) {
      cells[column] = std::move(columns[column][static_cast<size_t>(row)]);
    }
    if (fits(cells)) {
      found.push_back(row);
    }
  }
  return found;
}

}  // namespace darkroom
