#include "darkroom/tables/tar_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"
#include "tar_header.h"

namespace darkroom {

namespace {

constexpr size_t kMaxWrittenNameBytes = 4096;
constexpr int64_t kFirstSizeBeyondOctal = int64_t{1} << 33;  // 11 octal digits.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr std::string_view kPaxMemberName = "././@PaxHeader";

Status check_written_name(std::string_view name) {
  bool is_fine = !name.empty() && name.size() <= kMaxWrittenNameBytes && name.find('\0') == std::string_view::npos;
  for (size_t begin = 0; is_fine && begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    is_fine = !part.empty() && part != "." && part != "..";
    begin = end + 1;
  }
  if (!is_fine) {
    return Status::invalid_argument("a tar archive takes no file of this name:", name.substr(0, 200));
  }
  return Status::ok();
}

using SplitName = std::pair<std::string_view, std::string_view>;

/// (prefix, name), with the shortest prefix; nothing where no slash does.
std::optional<SplitName> split_written_name(std::string_view name) {
  if (name.size() <= kTarName.size) {
    return SplitName("", name);
  }
  const size_t slash = name.find('/', name.size() - kTarName.size - 1);
  if (slash == std::string_view::npos || slash > kTarPrefix.size) {
    return std::nullopt;
  }
  return SplitName(name.substr(0, slash), name.substr(slash + 1));
}

/// "LENGTH KEYWORD=VALUE\n", where the length counts its own digits.
std::string pax_record(std::string_view keyword, std::string_view value) {
  const size_t rest = keyword.size() + value.size() + 3;
  size_t length = rest;
  while (length != rest + std::to_string(length).size()) {
    length = rest + std::to_string(length).size();
  }
  return fmt::format("{} {}={}\n", length, keyword, value);
}

using HeaderBlock = std::array<char, kTarBlockBytes>;

void put(HeaderBlock& block, TarField field, std::string_view text) { std::copy(text.begin(), text.end(), block.begin() + field.offset); }

HeaderBlock make_header(std::string_view prefix, std::string_view name, int64_t size_bytes, char type) {
  HeaderBlock block{};
  put(block, kTarName, name);
  put(block, kTarMode, type == '0' ? "0000644" : "0000000");
  put(block, kTarUid, "0000000");
  put(block, kTarGid, "0000000");
  put(block, kTarSize, fmt::format("{:011o}", size_bytes));
  put(block, kTarModificationTime, "00000000000");
  put(block, kTarType, std::string_view(&type, 1));
  put(block, kTarMagic,
      std::string_view("ustar\0"
                       "00",
                       8));
  put(block, kTarPrefix, prefix);
  put(block, kTarChecksum, fmt::format("{:06o}", tar_checksum(std::string_view(block.data(), block.size()))) + std::string("\0 ", 2));
  return block;
}

}  // namespace

Status TarWriter::add(std::string_view name, std::span<const std::byte> data) {
  DARKROOM_RETURN_IF_ERROR(begin_file(name, static_cast<int64_t>(data.size())));
  return write_data(data);
}

Status TarWriter::add_file(std::string_view name, const InputFile& file) {
  const int64_t size_bytes = file.size_bytes();
  DARKROOM_RETURN_IF_ERROR(begin_file(name, size_bytes));
  std::vector<std::byte> piece(static_cast<size_t>(std::min(size_bytes, kPieceBytes)));
  for (int64_t at = 0; at < size_bytes && failure_.is_ok();) {
    const auto room = std::span(piece).first(static_cast<size_t>(std::min(size_bytes - at, kPieceBytes)));
    const Result<size_t> num_read = file.read_at(at, room);
    if (!num_read.is_ok() || *num_read == 0) {  // The header has promised these bytes.
      failure_ = num_read.is_ok() ? Status::corrupt_data("the file became shorter while it was read:", file.path()) : num_read.status();
      break;
    }
    static_cast<void>(write(room.first(*num_read)));
    at += static_cast<int64_t>(*num_read);
  }
  return end_file(size_bytes);
}

Status TarWriter::finish() {
  DARKROOM_CHECK(!std::exchange(is_finished_, true), "a tar archive was finished twice");
  const std::array<std::byte, 2 * kTarBlockBytes> end_mark{};
  return write(end_mark);
}

Status TarWriter::write(std::span<const std::byte> bytes) {
  if (!failure_.is_ok() || bytes.empty()) {
    return failure_;
  }
  failure_ = sink_(bytes);
  num_bytes_ += failure_.is_ok() ? static_cast<int64_t>(bytes.size()) : 0;
  return failure_;
}

Status TarWriter::write_header(std::string_view prefix, std::string_view name, int64_t size_bytes, char type) {
  const HeaderBlock block = make_header(prefix, name, size_bytes, type);
  return write(std::as_bytes(std::span(block)));
}

Status TarWriter::write_pax(std::string_view records) {
  DARKROOM_RETURN_IF_ERROR(write_header("", kPaxMemberName, static_cast<int64_t>(records.size()), 'x'));
  return write_data(std::as_bytes(std::span(records)));
}

Status TarWriter::begin_file(std::string_view name, int64_t size_bytes) {
  DARKROOM_CHECK(!is_finished_, "a file for a finished tar archive:", name);
  DARKROOM_RETURN_IF_ERROR(check_written_name(name));
  std::string records;
  std::optional<SplitName> split = split_written_name(name);
  if (!split) {
    records += pax_record("path", name);
    split = SplitName("", name.substr(0, kTarName.size));
  }
  const bool is_huge = size_bytes >= kFirstSizeBeyondOctal;
  if (is_huge) {
    records += pax_record("size", std::to_string(size_bytes));
  }
  if (!records.empty()) {
    DARKROOM_RETURN_IF_ERROR(write_pax(records));
  }
  return write_header(split->first, split->second, is_huge ? 0 : size_bytes, '0');
}

Status TarWriter::end_file(int64_t size_bytes) {
  const std::array<std::byte, kTarBlockBytes> zeros{};
  return write(std::span(zeros).first(static_cast<size_t>(tar_padding(size_bytes))));
}

Status TarWriter::write_data(std::span<const std::byte> data) {
  DARKROOM_RETURN_IF_ERROR(write(data));
  return end_file(static_cast<int64_t>(data.size()));
}

}  // namespace darkroom
