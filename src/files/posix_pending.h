#pragma once

#include <memory>
#include <string>

#include "darkroom/files/commit_record.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// What make_posix_store's begin_object and begin_folder give. REQUIRES of both: the store is one of files and outlives the object.
Result<std::unique_ptr<PendingObject>> begin_posix_object(Store& store, FileSystem& files, const std::string& folder,
                                                          const std::string& name);
Result<std::unique_ptr<PendingFolder>> begin_posix_folder(Store& store, FileSystem& files, const std::string& folder,
                                                          const std::string& name);

/// The contender of a commit record of files: a temporary below `object`'s _tmp.
Result<Completion> complete_temporary(FileSystem& files, const Location& object, const CommitRecord& record);

}  // namespace darkroom
