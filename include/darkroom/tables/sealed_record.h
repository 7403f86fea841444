#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/table_footer.h"

namespace darkroom {

/// The record of a shard that is no Parquet file, at its end (docs/formats/commit.md): the key-values that a Parquet shard has in its
/// footer, and a line that says where they lie, with a hash of them.
struct SealedRecord {
  int64_t content_bytes = 0;  ///< Bytes before the record: what the content hash covers.
  KeyValues pairs = {};
};

/// What the record comes to. `between`: bytes of the container that stand between content and record (a tar member's header; it may depend
/// on the record's size, which is a multiple of `multiple_bytes`). In the value of kShardKey (a JSON object; made when absent)
/// "content_hash" is set.
struct SealOptions {
  int64_t content_bytes = 0;
  std::string content_hash = {};
  int64_t between_bytes = 0;
  int64_t multiple_bytes = 1;
};
/// The record without its hash: sealed by seal_record once `between` is known. Errors: kFailedPrecondition for one that is larger than
/// read_sealed_record takes (64 MiB).
Result<std::string> print_unsealed_record(KeyValues pairs, const SealOptions& options);
/// Sets the hash of `between` and the record. REQUIRES: print_unsealed_record's.
void seal_record(std::string_view between, std::string& record);

/// How many bytes of the container follow the record in a file of that name: the end mark of a tar.
int64_t bytes_behind_record(std::string_view path);

/// Reads the record at the end of a file and checks its hash. Errors: kCorruptData naming the file (no record, a changed one).
Result<SealedRecord> read_sealed_record(const InputFile& file);

/// The key-values of a shard of ours, by its name's ending: of the footer, or of the record. Errors: kNotFound; kCorruptData.
Result<KeyValues> read_shard_pairs(const Location& shard);
/// The value of a key; null when there is none.
const std::string* find_value(const KeyValues& pairs, std::string_view key);

}  // namespace darkroom
