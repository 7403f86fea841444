#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "darkroom/core/check.h"

namespace darkroom {

/// Reads numbers out of foreign bytes. Every read is checked: ask covers() first, a read outside throws CheckFailure.
class ByteView {
 public:
  explicit ByteView(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size(); }
  bool covers(size_t offset, size_t count) const { return offset <= bytes_.size() && count <= bytes_.size() - offset; }
  bool starts_with(size_t offset, std::string_view text) const {
    return covers(offset, text.size()) && this->text(offset, text.size()) == text;
  }
  /// REQUIRES: covers(offset, count). The same for all below.
  std::string_view text(size_t offset, size_t count) const {
    DARKROOM_CHECK(covers(offset, count), "a read outside the bytes (offset, count, size):", offset, count, size());
    return {reinterpret_cast<const char*>(bytes_.data()) + offset, count};
  }
  ByteView part(size_t offset, size_t count) const {
    DARKROOM_CHECK(covers(offset, count), "a part outside the bytes (offset, count, size):", offset, count, size());
    return ByteView(bytes_.subspan(offset, count));
  }
  uint32_t u8(size_t offset) const { return static_cast<uint8_t>(text(offset, 1)[0]); }
  uint32_t be16(size_t offset) const { return u8(offset) << 8 | u8(offset + 1); }
  uint32_t be32(size_t offset) const { return be16(offset) << 16 | be16(offset + 2); }
  uint32_t le16(size_t offset) const { return u8(offset) | u8(offset + 1) << 8; }
  uint32_t le24(size_t offset) const { return le16(offset) | u8(offset + 2) << 16; }
  uint32_t le32(size_t offset) const { return le16(offset) | le16(offset + 2) << 16; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace darkroom
