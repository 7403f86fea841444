#include "posix_sweep.h"

#include <algorithm>
#include <iterator>

#include "darkroom/files/commit_record.h"
#include "darkroom/files/paths.h"
#include "posix_pending.h"
#include "temporary.h"

namespace darkroom {

namespace {

constexpr std::ptrdiff_t kMaxHeld = 256;  // Each held leftover is an open file.

/// The records are read when the dead temporaries are held: a writer that died just before has made its record by then, and no dead one
/// makes another. So nothing is removed that a record names.
Status sweep_some(const Location& folder, FileSystem& files, std::span<const FileInfo> leftovers, std::chrono::sys_seconds oldest,
                  SweepReport& report) {
  std::vector<HeldLeftover> held;
  for (const FileInfo& leftover : leftovers) {
    DARKROOM_ASSIGN_OR_RETURN(std::optional<HeldLeftover> dead, hold_if_dead(files, leftover.path, oldest));
    if (dead) {
      held.push_back(*std::move(dead));
    }
  }
  const auto complete = [&files](const Location& object, const CommitRecord& record) { return complete_temporary(files, object, record); };
  DARKROOM_ASSIGN_OR_RETURN(const int64_t num_completed, sweep_records(folder, complete));
  report.num_completed += num_completed;
  for (const HeldLeftover& leftover : held) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(leftover.path));
    if (is_there) {
      DARKROOM_RETURN_IF_ERROR(files.remove_tree(leftover.path));
      ++report.num_temporaries;
    }
  }
  return Status::ok();
}

Status sweep_all(const Location& folder, FileSystem& files, std::chrono::sys_seconds oldest, SweepReport& report) {
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> leftovers, list_leftovers(files, folder.path));
  std::erase_if(leftovers, [](const FileInfo& entry) { return is_commit_record(file_name(entry.path)); });
  auto begin = leftovers.begin();
  do {  // Once also without leftovers: records may be left alone.
    const auto end = begin + std::min(kMaxHeld, std::distance(begin, leftovers.end()));
    DARKROOM_RETURN_IF_ERROR(sweep_some(folder, files, std::span(begin, end), oldest, report));
    begin = end;
  } while (begin != leftovers.end());
  return Status::ok();
}

}  // namespace

Result<SweepReport> sweep_posix_folder(const Location& folder, FileSystem& files, std::chrono::sys_seconds oldest) {
  SweepReport report;
  DARKROOM_RETURN_IF_ERROR(sweep_all(folder, files, oldest, report).with_context("sweeping what an interrupted run left"));
  return report;
}

}  // namespace darkroom
