#include "deny_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "darkroom/core/sha256.h"
#include "md5.h"

namespace darkroom {
namespace {

std::optional<std::byte> hash_digit(char c) {
  if (c >= '0' && c <= '9') {
    return std::byte(c - '0');
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? std::optional(std::byte(lower - 'a' + 10)) : std::nullopt;
}

/// Adds a hash of twice as many digits as the array has bytes. False: a character is no digit.
template <size_t kBytes>
bool add_hash(std::string_view digits, std::vector<std::array<std::byte, kBytes>>& hashes) {
  std::array<std::byte, kBytes> hash;
  for (size_t i = 0; i < kBytes; ++i) {
    const auto high = hash_digit(digits[2 * i]);
    const auto low = hash_digit(digits[2 * i + 1]);
    if (!high || !low) {
      return false;
    }
    hash[i] = *high << 4 | *low;
  }
  hashes.push_back(hash);
  return true;
}

template <size_t kBytes>
void sort_hashes(std::vector<std::array<std::byte, kBytes>>& hashes) {
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

template <size_t kBytes>
std::string_view bytes_of_hashes(const std::vector<std::array<std::byte, kBytes>>& hashes) {
  return {reinterpret_cast<const char*>(hashes.data()), kBytes * hashes.size()};
}

}  // namespace

Result<DenyList> DenyList::parse(std::string_view text, std::string_view name) {
  DenyList list;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string_view hash = line.substr(0, line.find_first_of(" \t\r#"));
    const bool is_read = hash.empty()        ? line.find_first_not_of(" \t\r") == std::string_view::npos || line.starts_with('#')
                         : hash.size() == 32 ? add_hash(hash, list.md5s_)
                         : hash.size() == 64 ? add_hash(hash, list.sha256s_)
                                             : false;
    if (!is_read) {
      return Status::corrupt_data(
          "a line of the deny list is no hash; it takes an MD5 (32 hexadecimal digits) or a SHA-256 (64) a line (file, line, text):", name,
          number, line.substr(0, 80));
    }
  }
  if (list.size() == 0) {
    return Status::corrupt_data("the deny list holds no hash, so that it would deny nothing; leave --deny-list out to deny nothing (file):",
                                name);
  }
  sort_hashes(list.md5s_);
  sort_hashes(list.sha256s_);
  return list;
}

bool DenyList::denies(std::span<const std::byte> bytes) const {
  if (!md5s_.empty() && std::binary_search(md5s_.begin(), md5s_.end(), md5(bytes))) {
    return true;
  }
  if (sha256s_.empty()) {
    return false;
  }
  std::vector<std::array<std::byte, 32>> own;
  add_hash(sha256_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}), own);
  return std::binary_search(sha256s_.begin(), sha256s_.end(), own.front());
}

std::string DenyList::fingerprint() const { return sha256_hex(sha256_hex(bytes_of_hashes(md5s_)) + sha256_hex(bytes_of_hashes(sha256s_))); }

}  // namespace darkroom
