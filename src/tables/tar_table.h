#pragma once

#include <memory>

#include "darkroom/core/result.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// open_table for webdataset tars: a row a sample. Columns: `key`, the sample's name in the archive; `image`, the bytes of its first
/// picture (jpg, jpeg, png, webp, gif, avif); `caption`, the `caption` of its json or else its txt, where one of the first 32 samples has
/// either; and the other members of these samples' json as text, as JSON lines have them, one that is named as ours (any letter case) with
/// `input_` before it. What a sample lacks, JSON that is no object and what is too large is null and counted as malformed. Of one tar 8
/// bytes a row are kept, and while rows are read a window of 4 MB and the batch. Errors: TarReader's, naming the file and the offset.
Result<std::unique_ptr<TableReader>> open_tar_table(std::shared_ptr<const InputFile> file);

}  // namespace darkroom
