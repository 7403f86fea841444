#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

struct TarHeader;

enum class TarMemberKind {
  kFile,
  kFolder,
  kLink,    ///< Symbolic or hard; never followed, and what it leads to is not told.
  kDevice,  ///< A character or block device, or a pipe.
  kOther,   ///< A kind that POSIX leaves to vendors, such as the label of a volume.
};

struct TarMember {
  std::string name = {};  ///< As in the archive: any bytes but NUL, not always UTF-8. Text for keys, not a path to write to.
  TarMemberKind kind = TarMemberKind::kFile;
  bool leaves_folder = false;  ///< The name is absolute or has a ".." in it: unpacked, it would lie outside.
  int64_t header_offset = 0;   ///< Where the first of its blocks stands in the file, a long name's too.
  int64_t data_offset = 0;     ///< Where its data stand in the file.
  int64_t size_bytes = 0;      ///< Size of its data, all of which lie in the file.

  bool operator==(const TarMember&) const = default;
};

struct TarLimits {
  int64_t max_name_bytes = 4096;        ///< A longer name is an error.
  int64_t max_pax_bytes = 1024 * 1024;  ///< A larger extended header is an error.
  int64_t window_bytes = 16 * 1024;     ///< Read at once where a header is wanted; more where each read is a request to a store.
};

/// The members of a tar archive one after the other, without their data: those are read with InputFile::read_at.
/// Format: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header" (path and size; other records are ignored), the older v7
/// format, and GNU tar's long names (L, K) and base-256 numbers.
/// An archive ends with two blocks of zeros; what follows them, another archive too, is not read. Memory: one window or one extended
/// header. Errors, each with the file and the offset: kCorruptData (a wrong checksum, a number that is none, a negative size, an archive
/// that ends before its end mark, data on a link or a folder, where readers disagree about what follows, two long names for one member, a
/// name or an extended header over the limits), kFailedPrecondition (sparse files, archives in several volumes), and those of
/// InputFile::read_at. A failure moves nothing: the next call tries the same member again. Thread safety: one object, one thread. REQUIRES:
/// the file outlives the reader.
class TarReader {
 public:
  /// `offset`: where the headers of the member to begin with stand.
  explicit TarReader(const InputFile& file, TarLimits limits = {}, int64_t offset = 0);

  /// The next member; nothing at the end of the archive.
  Result<std::optional<TarMember>> next();
  /// Where the next member's blocks start; after the end, the first byte behind the archive's end mark.
  int64_t offset() const { return offset_; }
  const InputFile& file() const { return file_; }

 private:
  struct Extension;

  Result<std::optional<TarMember>> read_member();
  Status read_end();
  Status check_room(int64_t at, int64_t size_bytes, std::string_view what) const;
  Result<std::optional<TarMember>> finish_member(TarHeader header, Extension extension);
  Status read_extension(char type, int64_t size_bytes, Extension& extension);
  Status take_long_name(char type, std::string_view text, Extension& extension);
  Status take_pax(char type, std::string_view text, Extension& extension);
  Result<std::string_view> bytes_at(int64_t at, int64_t count);

  const InputFile& file_;
  TarLimits limits_;
  int64_t offset_ = 0;
  int64_t at_ = 0;  // Where the next block is read; runs ahead of offset_ within one member.
  bool is_at_end_ = false;
  std::vector<std::byte> window_;
  int64_t window_offset_ = 0;
};

}  // namespace darkroom
