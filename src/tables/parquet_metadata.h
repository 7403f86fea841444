#pragma once

#include <parquet/metadata.h>

#include <memory>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/tables/table_footer.h"

namespace darkroom {

/// A footer in our words and in Parquet's.
struct ParquetMetadata {
  TableFooter footer;
  std::shared_ptr<parquet::FileMetaData> parquet;  // Shared by the ranges that are read from one file.
};

/// As read_footer.
Result<ParquetMetadata> read_parquet_metadata(const InputFile& file);

}  // namespace darkroom
