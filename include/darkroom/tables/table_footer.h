#pragma once

#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// Footer key of a shard's own record (JSON, docs/formats/commit.md).
inline constexpr const char* kShardKey = "darkroom.shard";
/// Footer key of the footer's own hash: SHA-256 of the footer with this value taken as 64 zeros.
inline constexpr const char* kFooterHashKey = "darkroom.footer_sha256";

using KeyValues = std::vector<std::pair<std::string, std::string>>;

struct RowGroupInfo {
  int64_t num_rows = 0;
  int64_t num_bytes = 0;  ///< Decoded size of its columns as the file states it.
};

/// What a Parquet file says about itself, or an MDS shard (in row groups of 256).
struct TableFooter {
  std::string path;
  int64_t file_bytes = 0;
  int64_t content_bytes = 0;  ///< Bytes before the footer: what the content hash covers.
  int64_t num_rows = 0;
  std::vector<RowGroupInfo> row_groups;
  std::shared_ptr<arrow::Schema> schema;
  KeyValues key_values;

  /// The value of a key; a null pointer when there is none.
  const std::string* find(std::string_view key) const;
};

/// Reads a Parquet file's footer and no data; of a file whose name ends in .mds what stands before and behind its samples. A footer or
/// record of ours is compared with its own hash; where another program carried our keys along into a file of its own, key_values lack the
/// hash and the shard's record. Errors: kNotFound; kCorruptData naming the file (truncated, no Parquet file, a changed
/// footer).
Result<TableFooter> read_footer(FileSystem& files, const std::string& path);
/// The same of an object in a store: one request (Store::read_tail) where the footer lies within the last 64 KiB.
Result<TableFooter> read_footer(const Location& place);

}  // namespace darkroom
