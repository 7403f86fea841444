#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/table_footer.h"

namespace darkroom {

struct PagedShardOptions {
  int64_t row_group_bytes = 64 << 20;  ///< A row group ends with the row that brings it to this many bytes of values,
  int64_t row_group_rows = std::numeric_limits<int64_t>::max();  ///< or to this many rows.
  int zstd_level = 3;  ///< Of the columns that are neither bytes nor lists; these are not compressed.
  /// The column whose values come apart from the batches and go to the file page by page, or nothing. The schema's first, binary:
  /// readers that split a file (Spark) take a row group to begin where its first column does, so what is written first must be first.
  std::string streamed_column = {};

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
};

/// A value of the streamed column: bytes of the caller, or null.
using BorrowedValue = std::optional<std::span<const std::byte>>;

/// A shard that is written and not yet visible.
struct FinishedShard {
  std::unique_ptr<PendingObject> object = nullptr;  ///< publish() makes it visible, first wins.
  std::string content_hash = {};                    ///< As it stands in the record: "xxh3-128:" and 32 hex digits.
  int64_t num_bytes = 0;
  int64_t num_rows = 0;
};

/// Writes one Parquet shard of format version 2 (docs/formats/parquet.md). Bytes and tensors go from where they lie into pages of our own,
/// hashed and checksummed on their way and never copied by us; other columns go through Arrow. The same rows, schema, options and footer
/// give the same bytes, however the rows were cut into batches.
/// Memory: the batches of one row group, and up to 1 MiB and a row of streamed bytes. Thread safety: one object, one thread.
class PagedShardWriter {
 public:
  /// Errors: kInvalidArgument (options; two columns of one name; a streamed column that is not the first or not binary) and the
  /// object's.
  static Result<std::unique_ptr<PagedShardWriter>> open(std::unique_ptr<PendingObject> object, std::shared_ptr<arrow::Schema> schema,
                                                        const PagedShardOptions& options = {});
  /// Discards what was written unless finish() gave it away.
  ~PagedShardWriter();
  PagedShardWriter(const PagedShardWriter&) = delete;
  PagedShardWriter& operator=(const PagedShardWriter&) = delete;

  /// Appends rows; keeps the batch's arrays until their row group ends. After an error only destruction.
  /// Errors: the object's; kResourceExhausted (memory, a value that no page holds); kFailedPrecondition (a null in a tensor column or in a
  /// binary column without nulls). REQUIRES: no streamed column; the batch has the writer's schema (metadata aside).
  Status write(const arrow::RecordBatch& batch);
  /// The same with a streamed column: `others` holds the other columns, `streamed` the first. Its bytes are borrowed until num_rows_taken()
  /// has passed their row. REQUIRES: as many values as rows.
  Status write(const arrow::RecordBatch& others, std::span<const BorrowedValue> streamed);
  int64_t num_rows() const;
  /// Rows from the first whose streamed bytes are written and no longer needed.
  int64_t num_rows_taken() const;
  /// Writes the footer; publishing is left to whoever commits. `footer` are its key-values in order; in the value of kShardKey (a JSON
  /// object; made when absent) "content_hash" is set. REQUIRES: called once, and not after an error.
  Result<FinishedShard> finish(KeyValues footer);

 private:
  struct State;
  explicit PagedShardWriter(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace darkroom
