#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "byte_view.h"
#include "darkroom/image/decode.h"
#include "jpeg_segments.h"

namespace darkroom {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kExifName = "Exif\0\0"sv;

// The orientation tag of the first directory of a TIFF structure (Exif 2.3, 4.6.2).
int orientation_of_exif(ByteView exif) {
  constexpr uint32_t kOrientationTag = 0x0112;
  constexpr uint32_t kShort = 3;
  constexpr size_t kEntryBytes = 12;
  if (exif.starts_with(0, kExifName)) {
    exif = exif.part(kExifName.size(), exif.size() - kExifName.size());
  }
  const bool is_little = exif.starts_with(0, "II*\0"sv);
  if ((!is_little && !exif.starts_with(0, "MM\0*"sv)) || !exif.covers(0, 8)) {
    return 1;
  }
  const auto word = [&](size_t offset) { return is_little ? exif.le16(offset) : exif.be16(offset); };
  const size_t directory = is_little ? exif.le32(4) : exif.be32(4);
  if (!exif.covers(directory, 2)) {
    return 1;
  }
  const size_t num_entries = word(directory);
  for (size_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (!exif.covers(entry, kEntryBytes)) {
      return 1;
    }
    if (word(entry) == kOrientationTag && word(entry + 2) == kShort) {
      const uint32_t value = word(entry + 8);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  }
  return 1;
}

std::optional<ByteView> exif_of_jpeg(ByteView bytes) {
  constexpr uint32_t kApp1 = 0xE1;
  JpegSegments segments(bytes);
  while (segments.next() == JpegSegments::Step::kSegment) {
    const ByteView body = bytes.part(segments.body_offset(), segments.body_bytes());
    if (segments.marker() == kApp1 && body.starts_with(0, kExifName)) {
      return body;
    }
  }
  return std::nullopt;
}

std::optional<ByteView> exif_of_png(ByteView bytes) {
  for (size_t chunk = 8; bytes.covers(chunk, 8);) {
    const size_t size = bytes.be32(chunk);
    if (!bytes.covers(chunk + 8, size + 4)) {
      return std::nullopt;
    }
    if (bytes.starts_with(chunk + 4, "eXIf")) {
      return bytes.part(chunk + 8, size);
    }
    chunk += size + 12;
  }
  return std::nullopt;
}

std::optional<ByteView> exif_of_webp(ByteView bytes) {
  for (size_t chunk = 12; bytes.covers(chunk, 8);) {
    const size_t size = bytes.le32(chunk + 4);
    if (!bytes.covers(chunk + 8, size)) {
      return std::nullopt;
    }
    if (bytes.starts_with(chunk, "EXIF")) {
      return bytes.part(chunk + 8, size);
    }
    chunk += 8 + size + size % 2;
  }
  return std::nullopt;
}

std::optional<ByteView> find_exif(ByteView bytes) {
  if (bytes.starts_with(0, "\xFF\xD8")) {
    return exif_of_jpeg(bytes);
  }
  if (bytes.starts_with(0, "\x89PNG\r\n\x1A\n")) {
    return exif_of_png(bytes);
  }
  if (bytes.starts_with(0, "RIFF") && bytes.starts_with(8, "WEBP")) {
    return exif_of_webp(bytes);
  }
  return std::nullopt;
}

}  // namespace

int read_orientation(std::span<const std::byte> bytes) {
  const std::optional<ByteView> exif = find_exif(ByteView(bytes));
  return exif ? orientation_of_exif(*exif) : 1;
}

Image apply_orientation(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) {
    return image;
  }
  // Stored row 0 is the visual: 2 top, mirrored; 3 bottom, mirrored; 4 bottom; 5 left; 6 right; 7 right, mirrored; 8 left, mirrored.
  const bool is_transposed = orientation >= 5;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const auto channels = static_cast<size_t>(image.num_channels);
  Image turned = Image::filled(is_transposed ? image.height : image.width, is_transposed ? image.width : image.height, image.num_channels);
  for (int y = 0; y < turned.height; ++y) {
    for (int x = 0; x < turned.width; ++x) {
      const int column = is_transposed ? y : x;
      const int row = is_transposed ? x : y;
      const uint8_t* from = image.row(from_bottom ? image.height - 1 - row : row) +
                            static_cast<size_t>(from_right ? image.width - 1 - column : column) * channels;
      std::memcpy(turned.row(y) + static_cast<size_t>(x) * channels, from, channels);
    }
  }
  return turned;
}

}  // namespace darkroom
