#pragma once

#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "run_folder.h"

namespace darkroom {

/// The newest six sample sheets of a run as HTML, each with how it was painted, and whether the prompts are captions of
/// pictures that the run trains on: painting those shows what it remembers, not what it can make up. Empty without sheets.
/// Looks through the captions of the first 100,000 rows. Errors: kCorruptData, those of the file system; a dataset that is not
/// where the recipe says is none.
Result<std::string> run_samples_html(FileSystem& files, const RunFolder& run);

}  // namespace darkroom
