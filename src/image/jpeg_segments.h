#pragma once

#include <cstddef>
#include <cstdint>

#include "byte_view.h"

namespace darkroom {

/// Walks the marker segments of a JPEG up to its first scan, without a library.
class JpegSegments {
 public:
  enum class Step { kSegment, kScan, kTruncated, kDamaged };

  /// REQUIRES: `jpeg` starts with the two bytes of SOI.
  explicit JpegSegments(ByteView jpeg) : jpeg_(jpeg) {}

  /// Goes to the next segment. kSegment: marker() and the body are valid and lie within the bytes; kScan: coded data
  /// begin, after a header whose body, from body_offset() on, may be cut.
  Step next();
  uint32_t marker() const { return marker_; }
  size_t body_offset() const { return body_; }
  size_t body_bytes() const { return body_bytes_; }

 private:
  ByteView jpeg_;
  size_t position_ = 2;
  uint32_t marker_ = 0;
  size_t body_ = 0;
  size_t body_bytes_ = 0;
};

/// Whether the marker starts a frame: SOF0 to SOF15 without DHT, JPG and DAC.
constexpr bool is_start_of_frame(uint32_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

}  // namespace darkroom
