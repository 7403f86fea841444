#include "row_bytes.h"

#include <arrow/extension_type.h>
#include <arrow/util/checked_cast.h>

#include <vector>

namespace darkroom {

namespace {

using arrow::internal::checked_cast;

void add_to_all(std::span<int64_t> sizes, int64_t bytes) {
  for (int64_t& size : sizes) {
    size += bytes;
  }
}

template <typename ArrayType>
void add_value_lengths(const arrow::Array& column, std::span<int64_t> sizes) {
  const auto& values = checked_cast<const ArrayType&>(column);
  for (size_t row = 0; row < sizes.size(); ++row) {
    sizes[row] += 4 + (values.IsNull(static_cast<int64_t>(row)) ? 0 : static_cast<int64_t>(values.value_length(static_cast<int64_t>(row))));
  }
}

template <typename ArrayType>
void add_list_bytes(const arrow::Array& column, std::span<int64_t> sizes) {
  const auto& lists = checked_cast<const ArrayType&>(column);
  if (lists.length() == 0) {
    return;
  }
  // Elements of fixed width, the usual ones, need no visit.
  const int64_t bit_width = lists.value_type()->bit_width();
  std::vector<int64_t> ends;
  if (bit_width < 0) {
    ends.resize(static_cast<size_t>(lists.values()->length()));
    add_row_bytes(*lists.values(), ends);
    for (size_t i = 1; i < ends.size(); ++i) {
      ends[i] += ends[i - 1];
    }
  }
  const auto end = [&](int64_t index) { return index == 0 ? 0 : ends[static_cast<size_t>(index - 1)]; };
  for (int64_t row = 0; row < lists.length(); ++row) {
    if (lists.IsNull(row)) {
      continue;
    }
    const int64_t first = lists.value_offset(row);
    const int64_t last = first + lists.value_length(row);
    sizes[static_cast<size_t>(row)] += bit_width >= 0 ? (last - first) * bit_width / 8 : end(last) - end(first);
  }
}

}  // namespace

void add_row_bytes(const arrow::Array& column, std::span<int64_t> sizes) {
  switch (column.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return add_value_lengths<arrow::BinaryArray>(column, sizes);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return add_value_lengths<arrow::LargeBinaryArray>(column, sizes);
    case arrow::Type::LIST:
      return add_list_bytes<arrow::ListArray>(column, sizes);
    case arrow::Type::LARGE_LIST:
      return add_list_bytes<arrow::LargeListArray>(column, sizes);
    case arrow::Type::FIXED_SIZE_LIST:
      return add_list_bytes<arrow::FixedSizeListArray>(column, sizes);
    case arrow::Type::EXTENSION:
      return add_row_bytes(*checked_cast<const arrow::ExtensionArray&>(column).storage(), sizes);
    case arrow::Type::STRUCT:
      for (const auto& field : checked_cast<const arrow::StructArray&>(column).fields()) {
        add_row_bytes(*field, sizes);
      }
      return;
    default: {
      constexpr int64_t kUnknownBytes = 8;
      const int64_t bit_width = column.type()->bit_width();
      return add_to_all(sizes, bit_width >= 0 ? (bit_width + 7) / 8 : kUnknownBytes);
    }
  }
}

}  // namespace darkroom
