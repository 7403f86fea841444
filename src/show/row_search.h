#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "table_kind.h"

namespace darkroom {

/// What the search of a dataset's page asks, of any row: every word must be somewhere in it, in letters A to Z of any case; column>5,
/// column<5 and column=5 compare the numbers of a column (row_cards.cpp has the same for the rows that a page holds). Pictures, tensors,
/// other bytes and nested values are not searched. Thread safety: immutable.
class RowSearch {
 public:
  RowSearch(std::string_view words, const arrow::Schema& schema, const TableKind& kind);

  /// Every row is found.
  bool is_empty() const { return words_.empty() && comparisons_.empty(); }
  /// Those that are looked at; none: no row is found by anything.
  const std::vector<std::string>& columns() const { return columns_; }

  /// The rows of a batch of columns() that are found, by their numbers in it, in their order. Errors: kCorruptData (a column is of another
  /// type than the schema's).
  Result<std::vector<int64_t>> find(const arrow::RecordBatch& batch, const std::string& path) const;

 private:
  struct Comparison {
    size_t column;
    char way;  // '<', '=' or '>'.
    double limit;
  };
  std::optional<Comparison> comparison_of(std::string_view word) const;
  bool fits(const std::vector<std::string>& cells) const;

  std::vector<std::string> columns_;
  std::vector<std::string> words_;
  std::vector<Comparison> comparisons_;
};

}  // namespace darkroom
