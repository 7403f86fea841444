#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "darkroom/core/status.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Takes the bytes of an archive in order: `[&](auto bytes) { return output.write(bytes); }` of an OutputFile.
using TarSink = std::function<Status(std::span<const std::byte>)>;

/// Writes a tar archive of plain files. Same names and data, same bytes: no time, no owner, mode 0644. Format: ustar (POSIX.1-2017, pax); a
/// name of more than 100 bytes is split at a slash; where that does not do, or from 8 GiB of data on, the member has a pax header before
/// it. The bytes are those of Python's tarfile (USTAR_FORMAT, else PAX_FORMAT; of a name in a pax header, where it is ASCII) up to the two
/// blocks of zeros at the end, after which it pads on. A failure of the sink spoils the archive: every later call returns it. Thread
/// safety: one object, one thread.
class TarWriter {
 public:
  explicit TarWriter(TarSink sink) : sink_(std::move(sink)) {}

  /// Adds a file. Names may come twice. Errors: the sink's; kInvalidArgument for a name that is empty, longer than 4,096 bytes, absolute,
  /// ends with a slash, has "." or ".." or nothing between slashes, or a zero byte (and then nothing is written). REQUIRES: not finished.
  Status add(std::string_view name, std::span<const std::byte> data);
  Status add(std::string_view name, std::string_view text) { return add(name, std::as_bytes(std::span(text))); }
  /// The same with a file's bytes, a piece at a time. Errors: also those of reading, kCorruptData for a file that became shorter.
  Status add_file(std::string_view name, const InputFile& file);
  /// Writes the end mark. REQUIRES: called once.
  Status finish();
  /// How many bytes went to the sink.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  Status write(std::span<const std::byte> bytes);
  Status write_header(std::string_view prefix, std::string_view name, int64_t size_bytes, char type);
  Status write_pax(std::string_view records);
  Status begin_file(std::string_view name, int64_t size_bytes);
  Status end_file(int64_t size_bytes);
  Status write_data(std::span<const std::byte> data);

  TarSink sink_;
  Status failure_;
  int64_t num_bytes_ = 0;
  bool is_finished_ = false;
};

}  // namespace darkroom
