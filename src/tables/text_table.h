#pragma once

#include <memory>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// open_table for CSV, TSV and JSON lines. REQUIRES: `format` is one of these.
Result<std::unique_ptr<TableReader>> open_text_table(std::shared_ptr<const InputFile> file, TableFormat format);

}  // namespace darkroom
