#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// Hashes of what must not be fetched or kept (--deny-list): a row whose URL, or whose picture's bytes, has one of them is `denied`.
/// Thread safety: immutable, any thread.
class DenyList {
 public:
  /// One hash a line: an MD5 (32 hexadecimal digits) or a SHA-256 (64), of a URL or of a picture's bytes; what follows white space or "#"
  /// is a comment. `name` is for messages. Errors: kCorruptData with the line that is no hash, or for a list without any;
  /// nothing of a bad list is used.
  static Result<DenyList> parse(std::string_view text, std::string_view name);

  bool denies(std::span<const std::byte> bytes) const;
  bool denies(std::string_view text) const { return denies(std::as_bytes(std::span(text))); }
  size_t size() const { return md5s_.size() + sha256s_.size(); }
  /// The same for the same hashes, in whatever order and how often they came.
  std::string fingerprint() const;

 private:
  std::vector<std::array<std::byte, 16>> md5s_;  // Ascending, each once; so is the next.
  std::vector<std::array<std::byte, 32>> sha256s_;
};

}  // namespace darkroom
