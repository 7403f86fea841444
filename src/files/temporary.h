#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"

namespace darkroom {

// What lies under another name until it is whole (docs/formats/commit.md): how it is named, held and swept.

inline constexpr const char* kTemporaryFolder = "_tmp";
inline constexpr std::string_view kTemporaryPrefix = "_tmp.";  ///< Of temporaries beside their targets.

/// NAME.UNIQUE, where UNIQUE is never used twice, by any process on any machine: MACHINE-PID-SECONDS-MARK-COUNT in hex. It decides no byte
/// that is published. NAME is cut so that no file system finds the whole too long.
std::string unique_name(const std::string& name);

/// Who made a temporary, as its name says.
struct TemporaryOwner {
  std::string machine = {};  ///< This machine since it was started, and this namespace of process ids.
  pid_t pid = 0;
  std::chrono::sys_seconds made = {};
};
/// Nothing for a name that unique_name() did not make.
std::optional<TemporaryOwner> owner_of_temporary(std::string_view name);
/// Whether it lived on this machine and is dead for certain.
bool is_dead_here(const TemporaryOwner& owner);

/// Whether `entry` is a temporary _tmp.NAME.UNIQUE of the target `name`.
bool is_temporary_beside(std::string_view entry, const std::string& name);

/// Locks a file or folder. False: it is held, or gone. True with a null lock: no locks here.
Result<bool> lock_where_possible(FileSystem& files, const std::string& path, std::unique_ptr<FileLock>& lock);

/// A file that only its writer knows.
struct Temporary {
  std::string path;
  std::unique_ptr<OutputFile> file;
  std::unique_ptr<FileLock> lock;  ///< Null where the file system has no locks.
};
/// Makes the folders above and folder/NAME.UNIQUE.
Result<Temporary> make_temporary(FileSystem& files, const std::string& folder, const std::string& name);

/// Closes and removes a temporary that was not renamed, also when what fills it throws.
struct RemoveAtReturn {
  FileSystem& files;
  Temporary& temporary;
  bool is_renamed = false;

  ~RemoveAtReturn() {
    temporary.file.reset();
    if (!is_renamed) {
      (void)files.remove_file(temporary.path);  // Best effort: what stays is invisible and swept by the next run.
    }
  }
};

/// A folder that only its writer knows.
struct TemporaryTree {
  std::string path;
  std::unique_ptr<FileLock> lock;
};
/// Makes the folders above and the folder PREFIX + NAME.UNIQUE.
Result<TemporaryTree> make_temporary_tree(FileSystem& files, const std::string& prefix, const std::string& name);

/// A leftover that nobody writes any more, held so that nobody else takes it.
struct HeldLeftover {
  std::string path;
  std::unique_ptr<FileLock> lock;
};
/// Holds a leftover whose writer is dead: one that can be locked; where the file system has no locks, one that a dead process of this
/// machine made, or another machine before `oldest`. Nothing for one that is held, gone, or of an unknown writer.
Result<std::optional<HeldLeftover>> hold_if_dead(FileSystem& files, const std::string& path, std::chrono::sys_seconds oldest);

/// What ends with a name of ours below `output_folder`/_tmp and beside it. Fine when there is no such folder.
Result<std::vector<FileInfo>> list_leftovers(FileSystem& files, const std::string& output_folder);

/// What both ends of a race do last: the name must be durable before either may rely on it.
Result<PublishOutcome> finish_rename(FileSystem& files, const Status& renamed, const std::string& output_folder);

/// REQUIRES: `name` is not empty and holds no slash.
void check_plain_name(const std::string& name);

/// Makes every file and folder below survive a power loss, and `folder` too.
Status sync_tree(FileSystem& files, const std::string& folder);

}  // namespace darkroom
