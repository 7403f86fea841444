#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/stores/web_client.h"

namespace darkroom {

// Parts of a file over HTTP (RFC 9110, section 14).

/// What Content-Range says.
struct ContentRange {
  std::optional<ByteRange> range;     ///< Nothing: "*", the range that was asked for is not there.
  std::optional<int64_t> size_bytes;  ///< Of the whole file; nothing: "*".
};
/// Nothing: it is none of bytes. Pure.
std::optional<ContentRange> parse_content_range(std::string_view header);

/// A part of one version of a file.
struct WebPart {
  std::string bytes = {};
  int64_t size_bytes = 0;    ///< Of the whole file.
  std::string version = {};  ///< ETag, else Last-Modified, else "".
};

/// `request` for that part alone. REQUIRES: range.num_bytes > 0.
WebRequest part_request(WebRequest request, ByteRange range);
/// The answer to a part_request. `what`: the place, for messages. Errors: web_failure's; kFailedPrecondition: the server gives whole files
/// alone, packs them, or the file does not reach so far; kUnavailable: another part than was asked for.
Result<WebPart> read_web_part(WebAnswer answer, ByteRange range, const std::string& what);

/// The version that an answer is of: ETag, else Last-Modified, else "".
std::string web_version(const HttpHead& head);
/// Whether two versions may be the same one: equal, or not known.
bool may_be_same_version(std::string_view a, std::string_view b);
/// kFailedPrecondition where a body is packed (Content-Encoding).
Status check_not_packed(const HttpHead& head, const std::string& what);

/// A file whose every read is a request, or several at a time.
class RangedFile : public InputFile {
 public:
  bool is_remote() const final { return true; }
  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const final;
  Status read_ranges(std::span<const ByteRange> ranges, std::span<const std::span<std::byte>> out) const final;

 protected:
  /// Fills `out` from `offset` on, in one request. Called by several threads. REQUIRES: not empty, within the file.
  virtual Status read_part(int64_t offset, std::span<std::byte> out) const = 0;
};

}  // namespace darkroom
