#pragma once

#include <memory>
#include <string>

#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// A store of files: the machine's own, those in memory, or either with faults.
///
/// An object is written to FOLDER/_tmp/NAME.UNIQUE, locked while its writer lives, synced, renamed to FOLDER/NAME without replacing, and
/// the folder is synced. On a file system that has neither RENAME_NOREPLACE nor hard links a commit record decides (commit_record.h), and a
/// small object made by create_small is a folder that holds one file, because a rename onto a folder that holds something fails
/// everywhere; this store reads, replaces and removes it as if it were a file.
/// A pending folder is FOLDER/_tmp.NAME.UNIQUE, so that no `_tmp` is left in a folder of the user's. Where a file system has no locks, the
/// name of a temporary says which process of which machine made it, and when.
///
/// Missing folders are made. Names that begin with `_tmp` are no data. `scheme` "file" makes paths local (Store::local_path) and their own
/// URI. REQUIRES: `files` outlives the store.
std::unique_ptr<Store> make_posix_store(FileSystem& files, std::string scheme);

/// The machine's own files.
Store& local_store();

}  // namespace darkroom
