#pragma once

#include <memory>

#include "darkroom/core/result.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// open_table for MDS shards of mosaicml-streaming (version 2, uncompressed). Columns are those of the shard's own head; index.json is not
/// asked. Texts and "json" are utf8, numbers their types, everything else is binary. Errors: kCorruptData naming the file.
Result<std::unique_ptr<TableReader>> open_mds_table(std::shared_ptr<const InputFile> file);

/// What an MDS shard says of itself: rows in groups of as many as a latents dataset's row group has; the key-values of its record where it
/// is a shard of ours. Errors: kCorruptData naming the file (no MDS shard, a changed record).
Result<TableFooter> read_mds_footer(const InputFile& file);

}  // namespace darkroom
