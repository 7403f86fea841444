#pragma once

#include <arrow/array.h>

#include <cstdint>
#include <span>

namespace darkroom {

/// Adds to sizes[i] about how many bytes row i of `column` holds: a function of the row's value alone, so that row
/// groups are cut the same however the rows came in. REQUIRES: sizes.size() == column.length().
void add_row_bytes(const arrow::Array& column, std::span<int64_t> sizes);

}  // namespace darkroom
