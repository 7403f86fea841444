#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tables/tar_reader.h"

namespace darkroom {

/// A member's name as webdataset reads it: up to the first dot of its last part is the sample's key, what follows it, in lower case, says
/// what the member is to the sample: "a.b/000012.seg.PNG" is ("a.b/000012", "seg.png"). Nothing for a name without a key or an extension:
/// "README", "a/.hidden", "a/b.".
std::optional<std::pair<std::string, std::string>> split_sample_name(std::string_view name);

struct TarPart {
  std::string extension = {};
  TarMember member = {};

  bool operator==(const TarPart&) const = default;
};

/// Consecutive files of one key.
struct TarSample {
  std::string key = {};                  ///< Folders included; bytes as in the archive. Text, not a path to write to.
  std::vector<TarPart> parts = {};       ///< In the archive's order, each extension once.
  std::vector<TarPart> duplicates = {};  ///< Files whose extension the sample had before: the first one counts.

  /// The part of that extension (in lower case); null when there is none.
  const TarMember* find(std::string_view extension) const;
};

/// The samples of a webdataset tar (as img2dataset writes them). Members that are no files, and files whose names give no key and
/// extension, belong to no sample and separate none. A key that comes again after another one is a sample of its own: the reader remembers
/// one sample. Errors: those of TarReader; kCorruptData for more than kMaxParts files of one key, again from every later call. Thread
/// safety: one object, one thread. REQUIRES: the tar reader outlives it and is read by nobody else.
class TarSampleReader {
 public:
  static constexpr size_t kMaxParts = 1000;

  explicit TarSampleReader(TarReader& tar) : tar_(tar) {}

  /// The next sample; nothing at the end. A sample before damage that hides where it ends is not handed out.
  Result<std::optional<TarSample>> next();
  /// Members seen so far that belong to no sample; folders, which any archive may have, are not counted.
  int64_t num_left_out() const { return num_left_out_; }

 private:
  Status check_size() const;

  TarReader& tar_;
  TarSample sample_;  // Growing; without parts before its first file.
  Status failure_;    // Of a sample with too many files: what it had is no whole sample, so the failure stays.
  int64_t num_left_out_ = 0;
};

}  // namespace darkroom
