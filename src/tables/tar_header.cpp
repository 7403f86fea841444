#include "tar_header.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace darkroom {

namespace {

std::string_view field_of(std::string_view block, TarField field) { return block.substr(field.offset, field.size); }

std::string_view until_nul(std::string_view text) { return text.substr(0, text.find('\0')); }

/// Digits only, at least one; nothing else, and nothing from 2^63 on.
std::optional<int64_t> parse_digits(std::string_view text, int base) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stop != end || text.front() == '-') {
    return std::nullopt;
  }
  return value;
}

/// Big-endian two's complement whose first bit only marks the form (GNU tar).
Result<int64_t> parse_base_256(std::string_view field) {
  constexpr unsigned kSign = 0x40;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(field[i]); };
  if ((byte(0) & kSign) != 0) {
    return Status::corrupt_data("a number in its header is negative");
  }
  int64_t value = byte(0) & (kSign - 1);
  for (size_t i = 1; i < field.size(); ++i) {
    if (value > std::numeric_limits<int64_t>::max() >> 8) {
      return Status::corrupt_data("a number in its header has more than 63 bits");
    }
    value = value << 8 | byte(i);
  }
  return value;
}

/// Writers of old summed signed bytes; both sums are taken.
int64_t signed_checksum(std::string_view block) {
  const auto num_high = std::count_if(block.begin(), block.end(), [](char c) { return static_cast<signed char>(c) < 0; });
  const std::string_view own = field_of(block, kTarChecksum);
  const auto num_own = std::count_if(own.begin(), own.end(), [](char c) { return static_cast<signed char>(c) < 0; });
  return tar_checksum(block) - 256 * (num_high - num_own);
}

Status check_checksum(std::string_view block) {
  const auto recorded = parse_tar_number(field_of(block, kTarChecksum));
  if (!recorded.is_ok()) {
    return Status::corrupt_data("this is no header of a tar archive: its checksum is no number");
  }
  if (*recorded != tar_checksum(block) && *recorded != signed_checksum(block)) {
    return Status::corrupt_data("this is no header of a tar archive, or a damaged one: its checksum differs (want, got):", *recorded,
                                tar_checksum(block));
  }
  return Status::ok();
}

Status take_record(std::string_view keyword, std::string_view value, PaxRecords& records) {
  if (keyword.starts_with("GNU.sparse.")) {
    records.is_sparse = true;
  } else if (keyword == "path") {
    if (value.find('\0') != std::string_view::npos) {
      return Status::corrupt_data("the path in its extended header has a zero byte in it");
    }
    records.path = value.empty() ? std::nullopt : std::optional(std::string(value));
  } else if (keyword == "size") {
    records.size_bytes = parse_digits(value, 10);
    if (!records.size_bytes && !value.empty()) {
      return Status::corrupt_data("the size in its extended header is no number from 0 to 2^63 - 1");
    }
  }
  return Status::ok();
}

}  // namespace

int64_t tar_checksum(std::string_view block) {
  int64_t sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const bool is_own = i - kTarChecksum.offset < kTarChecksum.size;
    sum += is_own ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

Result<int64_t> parse_tar_number(std::string_view field) {
  if (!field.empty() && (static_cast<unsigned char>(field.front()) & 0x80) != 0) {
    return parse_base_256(field);
  }
  std::string_view text = until_nul(field);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  if (text.empty()) {
    return 0;
  }
  const std::optional<int64_t> value = parse_digits(text, 8);
  if (!value) {
    return Status::corrupt_data("a number in its header is no octal number");
  }
  return *value;
}

Result<TarHeader> parse_tar_header(std::string_view block) {
  DARKROOM_RETURN_IF_ERROR(check_checksum(block));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t size_bytes, parse_tar_number(field_of(block, kTarSize)));
  TarHeader header{.name = std::string(until_nul(field_of(block, kTarName))), .type = block[kTarType.offset], .size_bytes = size_bytes};
  // GNU tar ("ustar  ") keeps times where POSIX ("ustar\0") keeps the prefix.
  const std::string_view prefix = until_nul(field_of(block, kTarPrefix));
  if (until_nul(field_of(block, kTarMagic)) == "ustar" && !prefix.empty()) {
    header.name = std::string(prefix) + "/" + header.name;
  }
  return header;
}

Result<PaxRecords> parse_pax_records(std::string_view text) {
  PaxRecords records;
  while (!text.empty()) {  // "LENGTH KEYWORD=VALUE\n"; the length counts itself.
    const size_t blank = text.find(' ');
    const auto length = parse_digits(text.substr(0, std::min(blank, text.size())), 10);
    if (blank == std::string_view::npos || !length || *length > static_cast<int64_t>(text.size())) {
      return Status::corrupt_data("a record of its extended header has no length, or one that leads out of the header");
    }
    const std::string_view record = text.substr(0, static_cast<size_t>(*length));
    const size_t equals = record.find('=');
    if (record.size() < blank + 3 || record.back() != '\n' || equals == std::string_view::npos || equals <= blank + 1) {
      return Status::corrupt_data("a record of its extended header is no KEYWORD=VALUE with a line end");
    }
    const std::string_view value = record.substr(equals + 1, record.size() - equals - 2);
    DARKROOM_RETURN_IF_ERROR(take_record(record.substr(blank + 1, equals - blank - 1), value, records));
    text.remove_prefix(record.size());
  }
  return records;
}

}  // namespace darkroom
