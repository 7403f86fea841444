#include "darkroom/tables/table_footer.h"

#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "darkroom/core/sha256.h"
#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/quick_footer.h"
#include "darkroom/tables/table_reader.h"
#include "footer_hash.h"
#include "mds_table.h"
#include "parquet_metadata.h"

namespace darkroom {

namespace {

constexpr int64_t kTailBytes = 8;  // Length of the Thrift bytes (little-endian), then "PAR1".
constexpr int64_t kHeadBytes = 4;  // "PAR1", which says nothing that the end does not say.
constexpr size_t kHashDigits = 64;

Status not_parquet(const std::string& path, std::string_view why) {
  return Status::corrupt_data("reading a Parquet file: " + std::string(why) + " (path):", path);
}

Result<std::string> read_exactly(const InputFile& file, int64_t offset, int64_t num_bytes) {
  std::string bytes(static_cast<size_t>(num_bytes), '\0');
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(offset, std::as_writable_bytes(std::span(bytes))));
  if (num_read != bytes.size()) {
    return not_parquet(file.path(), "the file became shorter while it was read");
  }
  return bytes;
}

/// How many Thrift bytes the footer has, by the last bytes of its file; the magic number and the length are checked.
Result<int64_t> count_thrift_bytes(std::string_view last_bytes, int64_t file_bytes, const std::string& path) {
  if (file_bytes < kTailBytes + kHeadBytes || last_bytes.size() < static_cast<size_t>(kTailBytes)) {
    return not_parquet(path, "the file is too short, it is damaged or truncated");
  }
  last_bytes = last_bytes.substr(last_bytes.size() - static_cast<size_t>(kTailBytes));
  if (last_bytes.ends_with("PARE")) {
    return not_parquet(path, "the file is encrypted");
  }
  if (!last_bytes.ends_with("PAR1")) {
    return not_parquet(path, "PAR1 is not at its end, it is truncated or no Parquet file");
  }
  uint32_t thrift_bytes = 0;
  std::memcpy(&thrift_bytes, last_bytes.data(), sizeof(thrift_bytes));
  if (thrift_bytes > file_bytes - kTailBytes - kHeadBytes) {
    return not_parquet(path, "the footer's length is impossible, the file is damaged");
  }
  return static_cast<int64_t>(thrift_bytes);
}

Result<std::string> read_thrift(const InputFile& file) {
  const int64_t size = file.size_bytes();
  DARKROOM_ASSIGN_OR_RETURN(const std::string last_bytes,
                            read_exactly(file, std::max<int64_t>(0, size - kTailBytes), std::min(size, kTailBytes)));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t num_bytes, count_thrift_bytes(last_bytes, size, file.path()));
  return read_exactly(file, size - kTailBytes - num_bytes, num_bytes);
}

Status fill_footer(const parquet::FileMetaData& metadata, TableFooter& footer) {
  footer.num_rows = metadata.num_rows();
  int64_t num_rows = 0;
  for (int group = 0; group < metadata.num_row_groups(); ++group) {
    const auto row_group = metadata.RowGroup(group);
    footer.row_groups.push_back({.num_rows = row_group->num_rows(), .num_bytes = row_group->total_byte_size()});
    if (row_group->num_rows() < 0 || row_group->num_rows() > std::numeric_limits<int64_t>::max() - num_rows) {
      return not_parquet(footer.path, "a row group's row count is impossible");
    }
    num_rows += row_group->num_rows();
  }
  if (num_rows != footer.num_rows) {
    return not_parquet(footer.path, "the row groups do not add up to the number of rows");
  }
  if (const auto& pairs = metadata.key_value_metadata()) {
    for (int64_t i = 0; i < pairs->size(); ++i) {
      footer.key_values.emplace_back(pairs->key(i), pairs->value(i));
    }
  }
  const arrow::Status converted = parquet::arrow::FromParquetSchema(metadata.schema(), parquet::default_arrow_reader_properties(),
                                                                    metadata.key_value_metadata(), &footer.schema);
  return from_arrow(converted, "reading the schema of " + footer.path);
}

Result<ParquetMetadata> parse_thrift(const std::string& thrift, int64_t file_bytes, const std::string& path) {
  const FooterSeal seal = look_at_seal(thrift);
  if (seal == FooterSeal::kBroken) {
    return not_parquet(path, "the footer differs from its own hash, the file is damaged");
  }
  ParquetMetadata metadata;
  metadata.footer.path = path;
  metadata.footer.file_bytes = file_bytes;
  metadata.footer.content_bytes = file_bytes - kTailBytes - static_cast<int64_t>(thrift.size());
  try {
    uint32_t thrift_bytes = static_cast<uint32_t>(thrift.size());
    metadata.parquet = parquet::FileMetaData::Make(thrift.data(), &thrift_bytes);
    DARKROOM_RETURN_IF_ERROR(fill_footer(*metadata.parquet, metadata.footer));
  } catch (const std::exception& failure) {
    return Status::corrupt_data("reading the footer of a Parquet file (path, reason):", path, failure.what());
  }
  if (seal == FooterSeal::kCarriedAlong) {
    std::erase_if(metadata.footer.key_values, [](const auto& pair) { return pair.first == kShardKey || pair.first == kFooterHashKey; });
  }
  return metadata;
}

/// Whether created_by of ours is somewhere in `end`, perhaps with a few damaged letters. Of the names of other programs that are known
/// parquet-cpp-arrow's is the nearest, with " version " and two letters in their places.
bool names_our_program(std::string_view end) {
  constexpr size_t kFewLetters = 4;
  for (; end.size() >= kOurCreatedBy.size(); end.remove_prefix(1)) {
    size_t num_other = 0;
    for (size_t i = 0; i < kOurCreatedBy.size(); ++i) {
      num_other += end[i] == kOurCreatedBy[i] ? 0 : 1;
    }
    if (num_other <= kFewLetters) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string unsealed_footer_hash() { return std::string(kHashDigits, '0'); }

std::optional<size_t> find_footer_hash(const std::string& thrift) {
  // In Thrift's compact protocol the value follows its key after one byte of field header and one of length.
  constexpr size_t kValueHeaderBytes = 2;
  const size_t key = thrift.rfind(kFooterHashKey);
  if (key == std::string::npos) {
    return std::nullopt;
  }
  const size_t value = key + std::strlen(kFooterHashKey) + kValueHeaderBytes;
  return value + kHashDigits <= thrift.size() ? std::optional(value) : std::nullopt;
}

std::string hash_footer(std::string thrift, size_t position) {
  thrift.replace(position, kHashDigits, unsealed_footer_hash());
  return sha256_hex(thrift);
}

FooterSeal look_at_seal(const std::string& thrift) {
  const std::optional<size_t> position = find_footer_hash(thrift);
  if (!position) {
    return FooterSeal::kNone;
  }
  if (hash_footer(thrift, *position) == thrift.substr(*position, kHashDigits)) {
    return FooterSeal::kWhole;
  }
  const std::string_view end = std::string_view(thrift).substr(*position + kHashDigits);
  return names_our_program(end) ? FooterSeal::kBroken : FooterSeal::kCarriedAlong;
}

Result<ParquetMetadata> read_parquet_metadata(const InputFile& file) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string thrift, read_thrift(file));
  return parse_thrift(thrift, file.size_bytes(), file.path());
}

const std::string* TableFooter::find(std::string_view key) const {
  for (const auto& [name, value] : key_values) {
    if (name == key) {
      return &value;
    }
  }
  return nullptr;
}

namespace {

bool is_mds(std::string_view path) {
  const Result<TableFormat> format = container_format(path);
  return format.is_ok() && *format == TableFormat::kMds;
}

Result<TableFooter> read_footer_of(const InputFile& file) {
  if (is_mds(file.path())) {
    return read_mds_footer(file);
  }
  DARKROOM_ASSIGN_OR_RETURN(ParquetMetadata metadata, read_parquet_metadata(file));
  return std::move(metadata.footer);
}

}  // namespace

Result<TableFooter> read_footer(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, files.open_input(path));
  return read_footer_of(*file);
}

Result<TableFooter> read_footer(const Location& place) {
  std::optional<int64_t> size;
  if (!is_mds(place.path)) {
    DARKROOM_ASSIGN_OR_RETURN(const ObjectTail tail, place.store->read_tail(place.path, kPlanningTailBytes));
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_bytes, count_thrift_bytes(tail.bytes, tail.size_bytes, place.path));
    const std::string_view before_end = std::string_view(tail.bytes).substr(0, tail.bytes.size() - static_cast<size_t>(kTailBytes));
    if (static_cast<size_t>(num_bytes) <= before_end.size()) {
      const std::string thrift(before_end.substr(before_end.size() - static_cast<size_t>(num_bytes)));
      DARKROOM_ASSIGN_OR_RETURN(ParquetMetadata metadata, parse_thrift(thrift, tail.size_bytes, place.path));
      return std::move(metadata.footer);
    }
    size = tail.size_bytes;
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, place.store->open_input(place.path, size));
  return read_footer_of(*file);
}

}  // namespace darkroom
