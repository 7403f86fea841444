#include "page_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/crc32.h"

namespace darkroom {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory");

using ByteSpan = std::span<const std::byte>;

// Below it a value is copied: a piece of its own costs more.
constexpr size_t kCopiedBytes = 4 << 10;
// What a page may hold (its size is a 32-bit number), with room for levels and for the values before the last one.
constexpr int64_t kMaxPageValueBytes = std::numeric_limits<int32_t>::max() - (int64_t{64} << 20);

void append_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  bytes += static_cast<char>(value);
}

/// A field of type i32 whose number is one more than the last one's.
void append_next_i32(std::string& bytes, int32_t value) {
  constexpr char kNextI32 = 0x15;
  bytes += kNextI32;
  append_varint(bytes, (static_cast<uint32_t>(value) << 1) ^ static_cast<uint32_t>(value >> 31));  // Zigzag.
}

void store_u32(uint32_t value, void* to) { std::memcpy(to, &value, sizeof value); }

/// Writes a page in one go. `pieces`: the first is left empty for the header, the others are levels and values.
Status write_pieces(ShardContent& content, std::span<ByteSpan> pieces, int64_t num_values, ChunkExtent& chunk) {
  uint32_t crc = 0;
  int64_t page_bytes = 0;
  for (const ByteSpan piece : pieces.subspan(1)) {
    crc = crc32(piece, crc);
    page_bytes += static_cast<int64_t>(piece.size());
  }
  DARKROOM_CHECK(page_bytes <= std::numeric_limits<int32_t>::max() && num_values <= std::numeric_limits<int32_t>::max(),
                 "a page is too large (bytes, values):", page_bytes, num_values);
  const std::string header = encode_page_header(static_cast<int32_t>(page_bytes), crc, static_cast<int32_t>(num_values));
  pieces[0] = std::as_bytes(std::span(header));
  if (chunk.num_pages == 0) {
    chunk.first_page = content.num_bytes();
  }
  chunk.num_bytes += static_cast<int64_t>(header.size()) + page_bytes;
  chunk.num_values += num_values;
  ++chunk.num_pages;
  return content.write(pieces);
}

}  // namespace

void LevelRuns::add(uint8_t level, uint64_t count) {
  if (level != level_) {
    end_run();
    level_ = level;
  }
  count_ += count;
}

void LevelRuns::end_run() {
  if (count_ > 0) {
    append_varint(runs_, count_ << 1);  // The lowest bit 0: a run, not packed bits.
    runs_ += static_cast<char>(level_);
    count_ = 0;
  }
}

std::string LevelRuns::take() {
  end_run();
  store_u32(static_cast<uint32_t>(runs_.size() - 4), runs_.data());
  return std::exchange(runs_, std::string(4, '\0'));
}

std::string encode_page_header(int32_t page_bytes, uint32_t crc, int32_t num_values) {
  constexpr int32_t kDataPage = 0;
  constexpr int32_t kPlain = 0;
  constexpr int32_t kRunLengths = 3;
  constexpr char kNextStruct = 0x1c;
  constexpr char kStop = 0;
  std::string header;
  append_next_i32(header, kDataPage);
  append_next_i32(header, page_bytes);  // Uncompressed.
  append_next_i32(header, page_bytes);  // Compressed.
  append_next_i32(header, static_cast<int32_t>(crc));
  header += kNextStruct;
  append_next_i32(header, num_values);
  append_next_i32(header, kPlain);
  append_next_i32(header, kRunLengths);  // Definition levels.
  append_next_i32(header, kRunLengths);  // Repetition levels.
  header += kStop;
  header += kStop;
  return header;
}

BytesPageWriter::BytesPageWriter(std::string column, bool is_optional, ShardContent& content)
    : column_(std::move(column)), is_optional_(is_optional), content_(content) {}

Status BytesPageWriter::add(std::optional<ByteSpan> value) {
  if (!value && !is_optional_) {
    return Status::failed_precondition("writing pages: a column without nulls was given one (column):", column_);
  }
  if (value && value->size() > static_cast<uint64_t>(kMaxPageValueBytes)) {
    return Status::resource_exhausted("writing pages: a value is larger than a page of Parquet can be (column, limit, bytes):", column_,
                                      kMaxPageValueBytes, value->size());
  }
  if (is_optional_) {
    levels_.add(value ? 1 : 0);
  }
  ++page_values_;
  if (value) {
    values_.push_back(*value);
    page_bytes_ += 4 + static_cast<int64_t>(value->size());
  }
  return page_bytes_ >= kPageBytes ? write_page() : Status::ok();
}

Status BytesPageWriter::write_page() {
  const std::string levels = is_optional_ ? levels_.take() : std::string();
  small_.clear();
  size_t small_bytes = levels.size();
  for (const ByteSpan value : values_) {
    small_bytes += 4 + (value.size() < kCopiedBytes ? value.size() : 0);
  }
  small_.resize(small_bytes);  // Grows no more: pieces point into it.
  pieces_.assign(1, ByteSpan());
  std::byte* begin = small_.data();
  std::byte* end = std::copy_n(reinterpret_cast<const std::byte*>(levels.data()), levels.size(), begin);
  for (const ByteSpan value : values_) {
    store_u32(static_cast<uint32_t>(value.size()), end);
    end += 4;
    if (value.size() < kCopiedBytes) {
      end = std::copy(value.begin(), value.end(), end);
    } else {
      pieces_.emplace_back(begin, end);
      pieces_.push_back(value);
      begin = end;
    }
  }
  if (begin != end) {
    pieces_.emplace_back(begin, end);
  }
  DARKROOM_RETURN_IF_ERROR(write_pieces(content_, pieces_, page_values_, chunk_));
  num_taken_ += page_values_;
  values_.clear();
  page_values_ = 0;
  page_bytes_ = 0;
  return Status::ok();
}

Result<ChunkExtent> BytesPageWriter::end_chunk() {
  if (page_values_ > 0) {
    DARKROOM_RETURN_IF_ERROR(write_page());
  }
  DARKROOM_CHECK(chunk_.num_pages > 0, "a column chunk has no values (column):", column_);
  return std::exchange(chunk_, {});
}

TensorPageWriter::TensorPageWriter(std::string column, Layout layout, ShardContent& content)
    : column_(std::move(column)), layout_(layout), row_bytes_(layout.row_values * layout.value_bytes), content_(content) {
  DARKROOM_CHECK(layout.row_values > 0 && layout.value_bytes > 0 && layout.max_definition_level > 0,
                 "this is no layout of tensors (column):", column_);
  rows_a_page_ = (kPageBytes + row_bytes_ - 1) / row_bytes_;
}

Status TensorPageWriter::add_rows(ByteSpan rows) {
  const auto row_bytes = static_cast<size_t>(row_bytes_);
  DARKROOM_CHECK(rows.size() % row_bytes == 0, "half a row was given to the page writer (column):", column_);
  if (row_bytes_ > kMaxPageValueBytes) {
    return Status::resource_exhausted("writing pages: a row is larger than a page of Parquet can be (column, limit, bytes):", column_,
                                      kMaxPageValueBytes, row_bytes_);
  }
  while (!rows.empty()) {
    const int64_t count = std::min(rows_a_page_ - page_rows_, static_cast<int64_t>(rows.size() / row_bytes));
    rows_.push_back(rows.first(static_cast<size_t>(count) * row_bytes));
    rows = rows.subspan(static_cast<size_t>(count) * row_bytes);
    page_rows_ += count;
    if (page_rows_ == rows_a_page_) {
      DARKROOM_RETURN_IF_ERROR(write_page());
    }
  }
  return Status::ok();
}

Status TensorPageWriter::write_page() {
  LevelRuns repetition;
  for (int64_t row = 0; row < page_rows_; ++row) {
    repetition.add(0);
    if (layout_.row_values > 1) {
      repetition.add(1, static_cast<uint64_t>(layout_.row_values - 1));
    }
  }
  LevelRuns definition;
  definition.add(layout_.max_definition_level, static_cast<uint64_t>(page_rows_ * layout_.row_values));
  const std::string levels = repetition.take() + definition.take();
  std::vector<ByteSpan> pieces = {ByteSpan(), std::as_bytes(std::span(levels))};
  pieces.insert(pieces.end(), rows_.begin(), rows_.end());
  DARKROOM_RETURN_IF_ERROR(write_pieces(content_, pieces, page_rows_ * layout_.row_values, chunk_));
  rows_.clear();
  page_rows_ = 0;
  return Status::ok();
}

Result<ChunkExtent> TensorPageWriter::end_chunk() {
  if (page_rows_ > 0) {
    DARKROOM_RETURN_IF_ERROR(write_page());
  }
  DARKROOM_CHECK(chunk_.num_pages > 0, "a column chunk has no values (column):", column_);
  return std::exchange(chunk_, {});
}

}  // namespace darkroom
