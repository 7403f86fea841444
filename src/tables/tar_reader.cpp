#include "darkroom/tables/tar_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tar_header.h"

namespace darkroom {

namespace {

bool has_parent_part(std::string_view name) {
  while (!name.empty()) {
    const size_t slash = std::min(name.find('/'), name.size());
    if (name.substr(0, slash) == "..") {
      return true;
    }
    name.remove_prefix(std::min(slash + 1, name.size()));
  }
  return false;
}

bool is_extension(char type) { return type == 'x' || type == 'X' || type == 'g' || type == 'L' || type == 'K'; }

Result<TarMemberKind> kind_of(char type, std::string_view name) {
  switch (type) {
    case '\0':
    case '0':
    case '7':  // Contiguous on the disk that it came from; a file as any other.
      return name.ends_with('/') ? TarMemberKind::kFolder : TarMemberKind::kFile;
    case '1':
    case '2':
      return TarMemberKind::kLink;
    case '3':
    case '4':
    case '6':
      return TarMemberKind::kDevice;
    case '5':
      return TarMemberKind::kFolder;
    case 'S':
      return Status::failed_precondition("sparse files are not read; pack the archive without --sparse");
    case 'M':
      return Status::failed_precondition("the archive is part of several volumes; pack it as one");
    default:
      return TarMemberKind::kOther;
  }
}

bool is_zero(std::string_view block) { return block.find_first_not_of('\0') == std::string_view::npos; }

}  // namespace

/// What the blocks before a member's own header say about it.
struct TarReader::Extension {
  std::string long_name;
  PaxRecords pax;
  bool has_long_name = false;
  bool has_long_link = false;
  bool has_pax = false;

  bool is_empty() const { return !has_long_name && !has_long_link && !has_pax; }
};

TarReader::TarReader(const InputFile& file, TarLimits limits, int64_t offset) : file_(file), limits_(limits), offset_(offset) {}

Result<std::optional<TarMember>> TarReader::next() {
  if (is_at_end_) {
    return std::optional<TarMember>();
  }
  at_ = offset_;
  Result<std::optional<TarMember>> member = read_member();
  if (!member.is_ok()) {
    return member.status().with_context(fmt::format("cannot read the tar archive {} at offset {}", file_.path(), at_));
  }
  offset_ = at_;
  return member;
}

Result<std::optional<TarMember>> TarReader::read_member() {
  Extension extension;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string_view block, bytes_at(at_, kTarBlockBytes));
    if (is_zero(block)) {
      if (!extension.is_empty()) {
        return Status::corrupt_data("the archive ends after a long name or an extended header, without its member");
      }
      DARKROOM_RETURN_IF_ERROR(read_end());
      return std::optional<TarMember>();
    }
    DARKROOM_ASSIGN_OR_RETURN(TarHeader header, parse_tar_header(block));
    if (is_extension(header.type)) {
      DARKROOM_RETURN_IF_ERROR(read_extension(header.type, header.size_bytes, extension));
      offset_ = extension.is_empty() ? at_ : offset_;  // A header for all members belongs to none.
      continue;
    }
    return finish_member(std::move(header), std::move(extension));
  }
}

/// Behind a member's own header, the last of its headers.
Result<std::optional<TarMember>> TarReader::finish_member(TarHeader header, Extension extension) {
  TarMember member{.name = std::move(header.name), .header_offset = offset_, .data_offset = at_ + kTarBlockBytes};
  if (extension.has_long_name || extension.pax.path) {
    member.name = extension.has_long_name ? std::move(extension.long_name) : *std::move(extension.pax.path);
  }
  member.leaves_folder = member.name.starts_with('/') || has_parent_part(member.name);
  member.size_bytes = extension.pax.size_bytes.value_or(header.size_bytes);
  DARKROOM_ASSIGN_OR_RETURN(member.kind, kind_of(extension.pax.is_sparse ? 'S' : header.type, member.name));
  if (member.size_bytes != 0 && member.kind != TarMemberKind::kFile && member.kind != TarMemberKind::kOther) {
    return Status::corrupt_data("a link, folder or device has data (bytes):", member.size_bytes);
  }
  DARKROOM_RETURN_IF_ERROR(check_room(member.data_offset, member.size_bytes, "a member's data"));
  at_ = member.data_offset + member.size_bytes + tar_padding(member.size_bytes);
  return std::optional(std::move(member));
}

/// The second block of the end mark; a lone block of zeros is a hole in the archive.
Status TarReader::read_end() {
  DARKROOM_ASSIGN_OR_RETURN(const std::string_view second, bytes_at(at_ + kTarBlockBytes, kTarBlockBytes));
  if (!is_zero(second)) {
    return Status::corrupt_data("a block of zeros stands alone; the end of an archive has two");
  }
  at_ += 2 * kTarBlockBytes;
  is_at_end_ = true;
  return Status::ok();
}

Status TarReader::check_room(int64_t at, int64_t size_bytes, std::string_view what) const {
  const int64_t num_left = std::max<int64_t>(file_.size_bytes() - at, 0);
  if (size_bytes > num_left || tar_padding(size_bytes) > num_left - size_bytes) {
    return Status::corrupt_data(fmt::format("the file ends inside {} (bytes needed, bytes left):", what), size_bytes, num_left);
  }
  return Status::ok();
}

/// Takes in a long name or an extended header and moves behind it.
Status TarReader::read_extension(char type, int64_t size_bytes, Extension& extension) {
  const bool is_long_name = type == 'L' || type == 'K';
  const int64_t limit = is_long_name ? limits_.max_name_bytes + 1 : limits_.max_pax_bytes;  // A long name ends with a zero byte.
  if (size_bytes > limit) {
    return Status::corrupt_data("a long name or an extended header is too large (bytes, limit):", size_bytes, limit);
  }
  DARKROOM_RETURN_IF_ERROR(check_room(at_ + kTarBlockBytes, size_bytes, "a long name or an extended header"));
  DARKROOM_ASSIGN_OR_RETURN(const std::string_view text, bytes_at(at_ + kTarBlockBytes, size_bytes));
  DARKROOM_RETURN_IF_ERROR(is_long_name ? take_long_name(type, text, extension) : take_pax(type, text, extension));
  if (extension.has_long_name && extension.pax.path) {
    return Status::corrupt_data("a member has a long name and a path in an extended header");
  }
  at_ += kTarBlockBytes + size_bytes + tar_padding(size_bytes);
  return Status::ok();
}

Status TarReader::take_long_name(char type, std::string_view text, Extension& extension) {
  if (std::exchange(type == 'L' ? extension.has_long_name : extension.has_long_link, true)) {
    return Status::corrupt_data("a member has two long names");
  }
  const std::string_view name = text.substr(0, text.find('\0'));  // Not every writer ends it so.
  if (static_cast<int64_t>(name.size()) > limits_.max_name_bytes) {
    return Status::corrupt_data("a member's name is too long (bytes, limit):", name.size(), limits_.max_name_bytes);
  }
  if (type == 'L') {
    extension.long_name = name;
  }
  return Status::ok();
}

Status TarReader::take_pax(char type, std::string_view text, Extension& extension) {
  DARKROOM_ASSIGN_OR_RETURN(PaxRecords records, parse_pax_records(text));
  if (records.path && static_cast<int64_t>(records.path->size()) > limits_.max_name_bytes) {
    return Status::corrupt_data("a member's name is too long (bytes, limit):", records.path->size(), limits_.max_name_bytes);
  }
  if (type == 'g') {
    if (records.path || records.size_bytes || records.is_sparse) {
      return Status::corrupt_data("an extended header for all members sets their path or size");
    }
    return Status::ok();
  }
  if (std::exchange(extension.has_pax, true)) {
    return Status::corrupt_data("a member has two extended headers");
  }
  extension.pax = std::move(records);
  return Status::ok();
}

/// Bytes of the file, out of the window where it holds them; valid until the next call.
Result<std::string_view> TarReader::bytes_at(int64_t at, int64_t count) {
  const int64_t num_left = file_.size_bytes() - at;
  if (num_left < count) {
    return Status::corrupt_data("the file ends before the end of the archive, two blocks of zeros (size of the file):", file_.size_bytes());
  }
  const int64_t window_end = window_offset_ + static_cast<int64_t>(window_.size());
  if (at < window_offset_ || at + count > window_end) {
    window_.resize(static_cast<size_t>(std::min(std::max(limits_.window_bytes, count), num_left)));
    window_offset_ = at;
    const Result<size_t> num_read = file_.read_at(at, window_);
    window_.resize(num_read.is_ok() ? *num_read : 0);
    if (!num_read.is_ok()) {
      return num_read.status();
    }
    if (*num_read < static_cast<size_t>(count)) {
      return Status::corrupt_data("the file has become shorter while it was read (size before):", file_.size_bytes());
    }
  }
  return std::string_view(reinterpret_cast<const char*>(window_.data()) + (at - window_offset_), static_cast<size_t>(count));
}

}  // namespace darkroom
