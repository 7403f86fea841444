#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// What an Authorization header "Bearer KEY" or "Basic base64(USER:KEY)" (RFC 7617) holds; nothing: it is neither.
std::optional<std::string> key_in(std::string_view authorization);

/// The keys that open a server. Only their digests are kept. Thread safety: immutable.
class AccessKeys {
 public:
  static constexpr size_t kMinKeyBytes = 16;

  /// No keys: nobody is asked for one.
  AccessKeys() = default;
  /// Reads a file of keys, one a line; empty lines and lines that begin with # are skipped. Errors: kInvalidArgument naming file and line
  /// (a key of fewer than 16 characters, or of others than printable ASCII without spaces), or a file without a key.
  static Result<AccessKeys> parse(std::string_view text, std::string_view file);

  bool is_empty() const { return digests_.empty(); }
  /// Whether an Authorization header is "Bearer KEY" with one of the keys, or HTTP Basic with one as the password, whoever the user. Takes
  /// the same time whichever key it is nearest to: what is compared are digests, every one of them, without leaving early.
  bool admits(std::string_view authorization) const;

 private:
  std::vector<std::string> digests_;  // SHA-256 in hexadecimal.
};

}  // namespace darkroom
