#pragma once

#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

/// The report of a run as one page without network, from what lies in its folder: figures, the curves of metrics.jsonl whose
/// values its inline script shows under the pointer, the newest sample sheets and whether their prompts were trained on,
/// where the time went, the rows that the run trains on, the machines, the recipe. With `compare_with`, another run folder,
/// its curves lie over the first one's and a table says where the two differ.
/// Errors: kNotFound (no metrics.jsonl), kCorruptData naming the file, those of the file system. A dataset that is not where
/// the recipe says is no error: the folder may have been moved.
Result<std::string> render_run_report(FileSystem& files, const std::string& run_folder, const std::string& compare_with = {});

/// Writes it as report.html of a run folder on any store. Errors: as above, those of the stores.
Status write_run_report(StoreSet& stores, const std::string& uri);
/// Writes it as RUN/report.html in one atomic step. Errors: as above.
Status write_run_report(FileSystem& files, const std::string& run_folder);

}  // namespace darkroom
