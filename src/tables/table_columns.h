#pragma once

#include <arrow/type.h>

#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// The places of `columns` in `schema` (all of them when empty).
/// Errors: kNotFound naming the file, the column and the columns that exist; kFailedPrecondition when a name stands for
/// two columns.
Result<std::vector<int>> find_columns(const arrow::Schema& schema, const std::vector<std::string>& columns, const std::string& path);

}  // namespace darkroom
