#include "listed_sizes.h"

#include <arrow/array.h>
#include <arrow/record_batch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <memory>
#include <string>

namespace darkroom {
namespace {

constexpr int64_t kMostRowsOfSizes = 10'000;
constexpr std::array<std::string_view, 5> kSizeNames = {"size", "bytes", "size_bytes", "file_size", "content_length"};

/// Whether SizeSum::add knows what to do with it.
bool is_number(const arrow::DataType& type) {
  constexpr std::array kNumbers = {arrow::Type::INT16, arrow::Type::UINT16, arrow::Type::INT32, arrow::Type::UINT32,
                                   arrow::Type::INT64, arrow::Type::UINT64, arrow::Type::FLOAT, arrow::Type::DOUBLE};
  return std::ranges::find(kNumbers, type.id()) != kNumbers.end();
}

/// "" where there is none.
std::string find_size_column(const arrow::Schema& schema) {
  for (const auto& field : schema.fields()) {
    std::string name = field->name();
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (std::ranges::find(kSizeNames, name) != kSizeNames.end() && is_number(*field->type())) {
      return field->name();
    }
  }
  return "";
}

struct SizeSum {
  double bytes = 0;
  int64_t rows = 0;

  template <typename Type>
  void add_values(const arrow::Array& column) {
    const auto& sizes = static_cast<const arrow::NumericArray<Type>&>(column);
    for (int64_t row = 0; row < sizes.length(); ++row) {
      const double size = sizes.IsValid(row) ? static_cast<double>(sizes.Value(row)) : 0;
      if (std::isfinite(size) && size > 0) {
        bytes += size;
        ++rows;
      }
    }
  }
  void add(const arrow::Array& column) {
    switch (column.type_id()) {
      case arrow::Type::INT16:
        return add_values<arrow::Int16Type>(column);
      case arrow::Type::UINT16:
        return add_values<arrow::UInt16Type>(column);
      case arrow::Type::INT32:
        return add_values<arrow::Int32Type>(column);
      case arrow::Type::UINT32:
        return add_values<arrow::UInt32Type>(column);
      case arrow::Type::INT64:
        return add_values<arrow::Int64Type>(column);
      case arrow::Type::UINT64:
        return add_values<arrow::UInt64Type>(column);
      case arrow::Type::FLOAT:
        return add_values<arrow::FloatType>(column);
      case arrow::Type::DOUBLE:
        return add_values<arrow::DoubleType>(column);
      default:
        return;  // No number that a size has.
    }
  }
};

}  // namespace

Status look_for_sizes(const JobPlan& plan, const std::stop_token& stop, PendingWork& work) {
  const auto item = plan.next_pending(0);
  if (!item) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, plan.open_input(*item));
  const std::string column = find_size_column(*table->schema());
  if (column.empty()) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto rows, table->read_rows(item->first_row, std::min(item->num_rows, kMostRowsOfSizes), {column}));
  SizeSum sum;
  for (;;) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped on request while reading:", table->path());
    }
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next());
    if (batch == nullptr) {
      break;
    }
    sum.add(*batch->column(0));
  }
  if (sum.rows > 0) {
    work.size_column = column;
    work.sized_rows = sum.rows;
    work.sized_bytes = sum.bytes / static_cast<double>(sum.rows);
  }
  return Status::ok();
}

}  // namespace darkroom
