#include "jpeg_segments.h"

namespace darkroom {
namespace {

constexpr uint32_t kStartOfImage = 0xD8;
constexpr uint32_t kEndOfImage = 0xD9;
constexpr uint32_t kStartOfScan = 0xDA;

constexpr bool stands_alone(uint32_t marker) { return marker == 0x01 || (marker >= 0xD0 && marker <= kStartOfImage); }

}  // namespace

JpegSegments::Step JpegSegments::next() {
  while (jpeg_.covers(position_, 2)) {
    const uint32_t code = jpeg_.u8(position_ + 1);
    if (jpeg_.u8(position_) != 0xFF || code == 0xFF || code == 0x00) {
      ++position_;  // Junk and fill bytes between segments, which libjpeg skips too.
      continue;
    }
    position_ += 2;
    if (stands_alone(code)) {
      continue;
    }
    if (code == kEndOfImage) {
      return Step::kDamaged;
    }
    if (code == kStartOfScan) {
      body_ = position_ + 2;
      return Step::kScan;
    }
    if (!jpeg_.covers(position_, 2)) {
      return Step::kTruncated;
    }
    const size_t length = jpeg_.be16(position_);
    if (length < 2) {
      return Step::kDamaged;
    }
    marker_ = code;
    body_ = position_ + 2;
    body_bytes_ = length - 2;
    if (!jpeg_.covers(body_, body_bytes_)) {
      return Step::kTruncated;
    }
    position_ = body_ + body_bytes_;
    return Step::kSegment;
  }
  return Step::kTruncated;
}

}  // namespace darkroom
