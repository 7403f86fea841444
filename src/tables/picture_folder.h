#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// A folder on whatever has files.
struct FolderSource {
  std::string path;  ///< Ends with a slash; for messages.
  /// Every file below it at any depth, by its name from there on.
  std::function<Result<std::vector<FileInfo>>()> list;
  std::function<Result<std::unique_ptr<InputFile>>(const FileInfo& file)> open;
};

/// What stands behind it outlives the source. `path` ends with a slash.
FolderSource folder_source(FileSystem& files, const std::string& path);
FolderSource folder_source(const Location& place);

/// open_table for folders; names that begin with "." or "_" do not count. With a metadata.jsonl or metadata.csv at its top: an imagefolder
/// as Hugging Face has it, a row a row of that file; `image`, the picture that its `file_name` names below the folder, then the file's
/// columns as text (one that is named image, in any letter case, with `input_` before it). Without: a row a picture, in byte order of the
/// names; `image`, `caption` (the .txt of the same name without the line end at its end, else empty) and `file_name`. A picture that is
/// missing or over kMaxPictureBytes is null and counted as malformed; nothing outside of the folder is ever read. In memory are the names
/// and sizes. Errors: the source's; kNotFound (no file_name column); kFailedPrecondition (two metadata files; a file that changed since it
/// was listed).
Result<std::unique_ptr<TableReader>> open_folder_table(FolderSource source);

}  // namespace darkroom
