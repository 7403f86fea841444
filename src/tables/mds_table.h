#pragma once

#include <memory>

#include "darkroom/core/result.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// open_table for shards of mosaicml-streaming (MDS, version 2), plain or, where the name ends in .zstd or .zst, compressed. A shard says
/// itself what its columns are; index.json is not needed. bytes, jpeg and png become binary, str, json and the str_ numbers text, int and
/// the scalars their type; a column of another encoding (pil, pkl, ndarray, lists) is of type null and never decoded. A sample whose sizes
/// do not fit it, or of more than kMaxPictureBytes, is null in every column and counted as malformed. Of a compressed shard nothing is held
/// but a window; a range decompresses all that lies before it. In memory: 4 bytes a row. Errors: kFailedPrecondition (another compression,
/// a later version); kCorruptData naming the file and the offset.
Result<std::unique_ptr<TableReader>> open_mds_table(std::shared_ptr<const InputFile> file);

/// What a shard says of itself: rows in groups of as many as a latents dataset's row group has; the key-values of its record where it is a
/// shard of ours. Errors: open_mds_table's.
Result<TableFooter> read_mds_footer(const InputFile& file);

}  // namespace darkroom
