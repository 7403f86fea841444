#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/prompts/picture_record.h"

namespace darkroom {

inline constexpr const char* kPictureRecordFile = "pictures.json";
inline constexpr const char* kPictureJournalFile = "pictures.jsonl";

/// A folder that pictures are painted into, picture by picture (docs/formats/jobs.md): OUT/JOB/00007.png, a line of OUT/pictures.jsonl for
/// each once it is there, and OUT/pictures.json in place of these lines once all are. A run that was cut at any instant loses the pictures
/// that have no line, which are painted again. Only one process at a time holds a folder.
/// Thread safety: any thread may add() at any time; the rest one at a time.
class PictureFolder {
 public:
  /// Makes the folder, locks it and reads what earlier runs left. Errors: kFailedPrecondition (another process holds it), kCorruptData (a
  /// record that is none), those of the file system.
  static Result<std::unique_ptr<PictureFolder>> open(FileSystem& files, const std::string& folder);

  /// The digest of a file that was painted with this identity and still has the bytes that it had then; else nothing.
  std::optional<std::string> find(const std::string& file, const std::string& identity) const;
  /// Says that pictures will be added: from here on there is no record until finish(). Removes what killed runs left beside the pictures
  /// of `jobs`, their folders' names. Errors: those of the file system.
  Status begin(const std::vector<std::string>& jobs);
  /// Writes a picture's file and its line; gives the file's digest. Errors: those of the file system. REQUIRES: begin() was called.
  Result<std::string> add(const std::string& file, const std::string& identity, std::string_view png);
  /// Writes the record and removes the lines, but those of pictures that it does not name: another run has painted them, and goes on with
  /// them. Errors: those of the file system.
  Status finish(const PictureRecord& record);

  const std::string& path() const { return folder_; }

 private:
  struct Painted {
    std::string identity;
    std::string sha256;
  };
  PictureFolder(FileSystem& files, std::string folder) : files_(files), folder_(std::move(folder)) {}
  Status read_earlier();
  void read_lines(std::string_view text);
  Status keep_lines_of_others(const PictureRecord& record);

  FileSystem& files_;
  std::string folder_;
  std::unique_ptr<FileLock> lock_;          // Null where the file system has none.
  std::map<std::string, Painted> painted_;  // By file.
  std::mutex mutex_;                        // Guards journal_.
  std::unique_ptr<OutputFile> journal_;
};

}  // namespace darkroom
