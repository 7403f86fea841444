#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

namespace darkroom {

/// A value that bounds a column, numbers in the widest type of their kind.
using BoundValue = std::variant<bool, int64_t, uint64_t, double, std::string>;

/// What is known of one column in one row group.
struct ColumnStatistics {
  std::optional<BoundValue> min;  ///< No value is less. It need not occur (writers cut long texts); NaN and null lie outside.
  std::optional<BoundValue> max;  ///< No value is greater.
  std::optional<int64_t> num_nulls;
};

/// What is known of a row group without reading it. A column that is not here may hold anything. Bounds that contradict
/// each other, bounds one of which is NaN, and a number of nulls below 0 or above num_rows say nothing.
struct RowGroupStatistics {
  int64_t num_rows = 0;
  std::map<std::string, ColumnStatistics> columns;  ///< By the name in the schema.
};

/// Which rows of a row group a filter keeps, as far as its statistics tell.
enum class Reach {
  kNone,  ///< None: the group need not be read.
  kSome,  ///< Perhaps some: its rows have to be asked.
  kAll,   ///< All of them: its rows need not be asked.
};

}  // namespace darkroom
