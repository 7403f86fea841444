#include "darkroom/core/hmac_sha256.h"

#include "darkroom/core/sha256.h"

namespace darkroom {
namespace {

std::string bytes_of_digest(std::string_view hex) {
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(value(hex[i]) << 4 | value(hex[i + 1]));
  }
  return bytes;
}

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view message) {
  constexpr size_t kBlockBytes = 64;
  std::string block = key.size() > kBlockBytes ? bytes_of_digest(sha256_hex(key)) : std::string(key);
  block.resize(kBlockBytes, '\0');
  std::string inner_pad = block;
  std::string outer_pad = block;
  for (size_t i = 0; i < kBlockBytes; ++i) {
    inner_pad[i] = static_cast<char>(block[i] ^ 0x36);
    outer_pad[i] = static_cast<char>(block[i] ^ 0x5C);
  }
  Sha256 inner;
  inner.update(inner_pad);
  inner.update(message);
  Sha256 outer;
  outer.update(outer_pad);
  outer.update(bytes_of_digest(inner.finish_hex()));
  return bytes_of_digest(outer.finish_hex());
}

bool equal_in_constant_time(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) {
    return false;
  }
  unsigned char difference = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (one[i] ^ other[i]));
  }
  return difference == 0;
}

}  // namespace darkroom
