#include "darkroom/serve/access_keys.h"
#include "darkroom/core/ascii_case.h"

#include <fmt/format.h>

#include <algorithm>

#include "darkroom/core/base64.h"
#include "darkroom/core/sha256.h"

namespace darkroom {

std::optional<std::string> key_in(std::string_view authorization) {
  const size_t space = authorization.find(' ');
  if (space == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string scheme = ascii_lower(std::string(authorization.substr(0, space)));
  const std::string_view credentials = authorization.substr(space + 1);
  if (scheme == "bearer") {
    return std::string(credentials);
  }
  const std::optional<std::string> pair = scheme == "basic" ? decode_base64(credentials) : std::nullopt;
  const size_t colon = pair.has_value() ? pair->find(':') : std::string::npos;
  return colon == std::string::npos ? std::nullopt : std::optional(pair->substr(colon + 1));
}

Result<AccessKeys> AccessKeys::parse(std::string_view text, std::string_view file) {
  AccessKeys keys;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view key = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!key.empty() && (key.back() == '\r' || key.back() == ' ' || key.back() == '\t')) {
      key.remove_suffix(1);
    }
    if (key.empty() || key.front() == '#') {
      continue;
    }
    // The key itself is no business of logs.
    if (key.size() < kMinKeyBytes || !std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; })) {
      return Status::invalid_argument(
          fmt::format("a key must have at least {} printable ASCII characters and no space (file, line):", kMinKeyBytes), file, line);
    }
    keys.digests_.push_back(sha256_hex(key));
  }
  if (keys.is_empty()) {
    return Status::invalid_argument("the file of keys holds none:", file);
  }
  return keys;
}

bool AccessKeys::admits(std::string_view authorization) const {
  const std::optional<std::string> given = key_in(authorization);
  if (!given.has_value()) {
    return false;
  }
  const std::string digest = sha256_hex(*given);
  unsigned is_known = 0;
  for (const std::string& key : digests_) {
    unsigned difference = 0;
    for (size_t i = 0; i < digest.size(); ++i) {
      difference |= static_cast<unsigned>(digest[i] ^ key[i]);
    }
    is_known |= static_cast<unsigned>(difference == 0);
  }
  return is_known != 0;
}

}  // namespace darkroom
