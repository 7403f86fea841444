#pragma once

#include <memory>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// open_table for Parquet files.
Result<std::unique_ptr<TableReader>> open_parquet_table(std::shared_ptr<const InputFile> file);

}  // namespace darkroom
