#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/read_ahead.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/statistics_filter.h"

namespace darkroom {

enum class TableFormat {
  kParquet,    ///< .parquet
  kCsv,        ///< .csv: RFC 4180, first row = column names.
  kTsv,        ///< .tsv: no quoting (a quote is an ordinary character), first row = column names.
  kJsonLines,  ///< .jsonl, .ndjson, .json: one object a line.
  kTar,        ///< .tar: a webdataset, a row a sample (docs/formats/image_containers.md; so are the next two).
  kMds,        ///< .mds, .mds.zstd: a shard of mosaicml-streaming.
  kFolder,     ///< A path that ends with a slash: a folder of pictures, or an imagefolder with its metadata.jsonl or .csv.
};
/// Whether columns of the format have types; else every column is text.
constexpr bool has_types(TableFormat format) { return format == TableFormat::kParquet || format == TableFormat::kMds; }

/// What a person calls the format.
std::string_view format_name(TableFormat format);

/// Of a table: one of the first four, by the name's ending, any letter case. Errors: kFailedPrecondition naming the endings that are known.
Result<TableFormat> table_format(std::string_view path);
bool is_table_path(std::string_view path);
/// Of whatever holds rows; the same errors.
Result<TableFormat> container_format(std::string_view path);

/// A larger picture in a tar, a folder or an MDS shard comes out as null: it would have to be held whole.
inline constexpr int64_t kMaxPictureBytes = int64_t{256} << 20;

/// Of TableReader::row_marks().
inline constexpr int64_t kRowsPerTarMark = 64;

struct ReadOptions {
  int64_t batch_bytes = 16 << 20;              ///< About how much a batch may hold (one row may be more).
  int64_t max_batch_rows = 4096;               ///< Upper bound on the rows of a batch.
  int64_t read_ahead_bytes = kReadAheadBytes;  ///< Of a remote file, asked for before they are wanted (files/read_ahead.h); 0: none.
  /// Told how many bytes a range of a Parquet file will hold in pages of more than a megabyte, before it reads one that makes it more, and
  /// 0 when it holds none any longer. May wait; its failure is next()'s. Null: nobody asks.
  std::function<Status(int64_t num_bytes)> hold_pages = {};
};

/// A row group of a Parquet file.
struct RowGroup {
  int64_t first_row = 0;  ///< Number in the file.
  RowGroupStatistics statistics = {};
};

/// What tells a folder from the one that it was before.
struct TableIdentity {
  int64_t size_bytes = 0;   ///< Of its files together.
  std::string sha256 = {};  ///< Over their names and sizes.
};

/// The rows of one read, in order. Thread safety: one object, one thread.
class RowRange {
 public:
  virtual ~RowRange() = default;
  /// The next batch, never empty; a null pointer after the last one. Columns as they were asked for.
  /// Errors: kCorruptData naming the file, the store's own.
  virtual Result<std::shared_ptr<arrow::RecordBatch>> next() = 0;
  /// Rows so far that were no rows (a CSV line with another number of fields, a line that is no JSON object): each
  /// came out with null in every column. Of pictures: rows of which something is missing (a sample without a picture, JSON that is none),
  /// null in these columns. Always 0 for Parquet.
  virtual int64_t num_malformed_rows() const { return 0; }
};

/// Rows in one file or folder, read in ranges with bounded memory: never the whole file at once.
/// Parquet: page checksums are verified where they exist and every batch passes ValidateFull, save that text is not
/// checked for UTF-8 (one bad caption must not cost a file): whoever uses text replaces invalid bytes.
/// CSV, TSV and JSON lines carry no types: every column is text (utf8), a JSON value that is no string is its JSON
/// text, null or absent is null; empty lines are no rows; a row longer than 64 MiB is kCorruptData.
/// Thread safety: any thread, one at a time; ranges of one reader may be read by different threads.
class TableReader {
 public:
  virtual ~TableReader() = default;
  virtual const std::string& path() const = 0;
  virtual TableFormat format() const = 0;
  /// All columns of the file. JSON lines: the keys of the first 1,000 rows in the order in which they appear; a key
  /// that only later rows have is not read.
  virtual const std::shared_ptr<arrow::Schema>& schema() const = 0;
  /// Parquet, MDS and folders know it; the text formats read the file once and remember where rows begin; a tar's headers are walked
  /// through once, likewise.
  virtual Result<int64_t> num_rows() = 0;
  /// Rows [first, first + count) with `columns` in that order (empty: all); past the end the range ends early.
  /// Errors: kNotFound naming the file, the missing column and the columns that exist. REQUIRES: first, count >= 0.
  virtual Result<std::unique_ptr<RowRange>> read_rows(int64_t first, int64_t count, const std::vector<std::string>& columns,
                                                      const ReadOptions& options = {}) = 0;
  /// The row groups that hold some of the rows [first, first + count), in order, with what the file says of these columns. Columns that
  /// it does not have are left out. Empty for all other formats, which have no row groups.
  virtual std::vector<RowGroup> row_groups([[maybe_unused]] int64_t first, [[maybe_unused]] int64_t count,
                                           [[maybe_unused]] const std::vector<std::string>& columns) {
    return {};
  }
  /// Of a tar: where each kRowsPerTarMark-th row begins, from the first on, as far as that is known by now. Empty for all other formats.
  virtual std::vector<int64_t> row_marks() const { return {}; }
  /// Spares a tar walking to what an earlier reader of it knew. REQUIRES: row_marks() of a reader of the same bytes.
  virtual void take_row_marks([[maybe_unused]] std::span<const int64_t> marks) {}
  /// Of a folder; nothing for a file, which its size and its last bytes tell apart.
  virtual std::optional<TableIdentity> identity() const { return std::nullopt; }
};

/// Opens what holds rows by its name's ending. Errors: container_format's, FileSystem's; kCorruptData naming the file.
Result<std::unique_ptr<TableReader>> open_table(FileSystem& files, const std::string& path);
/// The same of an object in a store, which outlives the reader.
Result<std::unique_ptr<TableReader>> open_table(const Location& place);

}  // namespace darkroom
