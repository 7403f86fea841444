#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// What the logs of a run lost because the disk of its spool was full: a warning with the first record, and one with the counts when the
/// object goes. Thread safety: none.
class LostRecords {
 public:
  LostRecords() = default;
  ~LostRecords();
  LostRecords(const LostRecords&) = delete;
  LostRecords& operator=(const LostRecords&) = delete;

  void count(const std::string& path, const Status& failure);

 private:
  std::map<std::string, int64_t> records_;  // By the name of the log.
};

/// `file`, each write() of which is one record: one that the disk has no room for (kResourceExhausted) is counted in `lost` instead of
/// failing, and the file is whole without it. Every other failure is the file's. Null: the file as it is.
/// REQUIRES: a file of this machine, opened by `files` and written by nobody else; these and `lost` outlive it.
Result<std::unique_ptr<OutputFile>> allow_lost_records(FileSystem& files, std::unique_ptr<OutputFile> file, LostRecords* lost);

}  // namespace darkroom
