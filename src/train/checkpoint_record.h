#pragma once

#include <map>
#include <string>
#include <string_view>

#include "darkroom/train/checkpoint.h"

namespace darkroom {

inline constexpr std::string_view kStateFileName = "state.json";

/// Size and SHA-256 of one file of a checkpoint.
struct FileDigest {
  int64_t size_bytes = 0;
  std::string sha256;
};

/// Files of a checkpoint by their paths within it, state.json aside.
using FileDigests = std::map<std::string, FileDigest>;

/// The text of state.json. It carries a SHA-256 of itself, so a changed number is noticed, too.
std::string print_record(const CheckpointRecord& record, const FileDigests& digests);

struct ParsedRecord {
  CheckpointRecord record;
  FileDigests digests;
};
/// Errors: kCorruptData, kFailedPrecondition (a later format version).
Result<ParsedRecord> parse_record(std::string_view text);

}  // namespace darkroom
