#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "shard_content.h"

namespace darkroom {

// Parquet's data pages (version 1, PLAIN, uncompressed, CRC-32) made of bytes where they lie. Version 1 because every reader has it: what
// version 2 adds, levels outside of the compression, is nothing where there is no compression.
// A page ends with the row that brings its values to kPageBytes. Its checksum stands before its values, so that a page is gone through
// twice while it lies in the cache: for the checksum, then for the content hash and the write.
// Source: parquet.thrift (PageHeader, DataPageHeader), Parquet's Encodings.md (PLAIN, RLE) and Thrift's compact protocol.

/// Bytes of values that end a page; those of a byte array count 4 more for its length.
inline constexpr int64_t kPageBytes = 1 << 20;

/// What the footer says of a column chunk.
struct ChunkExtent {
  int64_t first_page = -1;  ///< Offset in the file.
  int64_t num_bytes = 0;    ///< Of all pages with their headers.
  int64_t num_values = 0;   ///< With nulls.
  int32_t num_pages = 0;
};

/// Levels as version 1 stores them: their length in 4 bytes, then runs of equal levels. REQUIRES of all: levels up to 255.
class LevelRuns {
 public:
  void add(uint8_t level, uint64_t count = 1);
  /// The levels added since the last call.
  std::string take();

 private:
  void end_run();

  std::string runs_ = std::string(4, '\0');  // The first four are the length's.
  uint8_t level_ = 0;
  uint64_t count_ = 0;
};

/// The Thrift bytes of a page's header. `page_bytes`: of what follows it.
std::string encode_page_header(int32_t page_bytes, uint32_t crc, int32_t num_values);

/// Writes the pages of a flat BYTE_ARRAY column. Thread safety: one object, one thread; after an error only destruction.
class BytesPageWriter {
 public:
  /// `is_optional`: the column has nulls. REQUIRES: `content` outlives it.
  BytesPageWriter(std::string column, bool is_optional, ShardContent& content);

  /// Adds the next row's value. The bytes are borrowed until its page is written: num_taken() says when.
  /// Errors: the object's; kResourceExhausted for a value that no page holds (2 GB); kFailedPrecondition for a null in a column without.
  Status add(std::optional<std::span<const std::byte>> value);
  /// How many values, of all that were ever added, are written: their bytes are no longer needed.
  int64_t num_taken() const { return num_taken_; }
  /// Writes what waits and ends the column chunk; the next value begins another one. Errors: the object's. REQUIRES: a value.
  Result<ChunkExtent> end_chunk();

 private:
  Status write_page();

  std::string column_;
  bool is_optional_;
  ShardContent& content_;
  ChunkExtent chunk_;
  LevelRuns levels_;
  std::vector<std::span<const std::byte>> values_;  // Of the page that is being filled, without nulls.
  int64_t page_values_ = 0;
  int64_t page_bytes_ = 0;
  int64_t num_taken_ = 0;
  std::vector<std::byte> small_;                    // Of the page: levels, lengths and small values.
  std::vector<std::span<const std::byte>> pieces_;  // Of the page.
};

/// Writes the pages of a column of lists of equal length without nulls: values of fixed width, whose memory is their PLAIN encoding.
/// Thread safety: one object, one thread; after an error only destruction.
class TensorPageWriter {
 public:
  struct Layout {
    int64_t row_values = 0;            ///< In every row; positive.
    int64_t value_bytes = 0;           ///< Of one.
    uint8_t max_definition_level = 0;  ///< The level of a value that is there; 0 is not one of a list.
  };
  /// REQUIRES: `content` outlives it.
  TensorPageWriter(std::string column, Layout layout, ShardContent& content);

  /// Adds rows that lie one after another; borrowed until end_chunk(). Errors: the object's; kResourceExhausted for rows that no page
  /// holds.
  Status add_rows(std::span<const std::byte> rows);
  /// As BytesPageWriter's.
  Result<ChunkExtent> end_chunk();

 private:
  Status write_page();

  std::string column_;
  Layout layout_;
  int64_t row_bytes_ = 0;
  int64_t rows_a_page_ = 0;
  ShardContent& content_;
  ChunkExtent chunk_;
  std::vector<std::span<const std::byte>> rows_;  // Of the page that is being filled.
  int64_t page_rows_ = 0;
};

}  // namespace darkroom
