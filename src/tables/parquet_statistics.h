#pragma once

#include <parquet/metadata.h>

#include <string>
#include <vector>

#include "darkroom/tables/statistics_filter.h"

namespace darkroom {

/// What a Parquet file's footer says of some columns in one row group. Bounds are taken only where the Parquet format defines
/// their order: not the deprecated fields min and max of old writers, and not of decimals, half-precision numbers, times and
/// lists. What is missing, damaged or makes no sense is left out.
RowGroupStatistics read_statistics(const parquet::FileMetaData& file, int row_group, const std::vector<std::string>& columns);

}  // namespace darkroom
