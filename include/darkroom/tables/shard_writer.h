#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/table_footer.h"

namespace darkroom {

enum class ColumnCodec { kNone, kZstd };

struct ShardOptions {
  int64_t row_group_bytes = 64 << 20;              ///< A row group is closed once it holds this many bytes in memory.
  int zstd_level = 3;                              ///< Level of the compressed columns.
  std::map<std::string, ColumnCodec> codecs = {};  ///< Exceptions. Default: kNone for binary and list columns, else kZstd.

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
};

struct ShardRecord {
  std::string path = {};          ///< Its URI; of a local file the path.
  std::string content_hash = {};  ///< SHA-256 of the bytes before the footer that this writer wrote.
  int64_t num_bytes = 0;          ///< Size of the file that was written.
  int64_t num_rows = 0;
  PublishOutcome outcome = PublishOutcome::kPublished;
};

/// Writes one Parquet shard as a PendingObject: nothing is visible before finish(), all of it after. The same rows,
/// schema, options and footer give the same bytes, however the rows were cut into batches. Page checksums are written.
/// Memory: up to twice row_group_bytes and what one batch holds. Thread safety: one object, one thread.
class ShardWriter {
 public:
  /// The object output_folder/name. Errors: the store's; kInvalidArgument (options, or a codec for a column that the schema lacks).
  static Result<std::unique_ptr<ShardWriter>> open(const Location& output_folder, const std::string& name,
                                                   std::shared_ptr<arrow::Schema> schema, const ShardOptions& options = {});
  /// The same among the files of a file system.
  static Result<std::unique_ptr<ShardWriter>> open(FileSystem& files, const std::string& output_folder, const std::string& name,
                                                   std::shared_ptr<arrow::Schema> schema, const ShardOptions& options = {});
  /// Discards what was written unless finish() published it.
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Appends rows. REQUIRES: the batch has the writer's schema (metadata aside). After an error only destruction.
  Status write(const arrow::RecordBatch& batch);
  int64_t num_rows() const;
  /// Writes the footer and publishes. `footer` are its key-values in order; in the value of kShardKey (a JSON object;
  /// made when absent) "content_hash" is set. REQUIRES: called once, and not after an error.
  Result<ShardRecord> finish(KeyValues footer);

 private:
  struct State;
  explicit ShardWriter(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// Reads a whole shard again and compares it with its own record: the content hash in kShardKey, the footer's own hash.
/// Errors: kCorruptData naming the file and what differs, or when it is no shard of ours; kNotFound.
Status verify_shard(FileSystem& files, const std::string& path);

}  // namespace darkroom
