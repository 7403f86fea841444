#include "darkroom/image/probe.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "byte_view.h"
#include "jpeg_segments.h"

namespace darkroom {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kJpegMagic = "\xFF\xD8\xFF";
constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1A\n";

RowError not_an_image(std::string detail) { return {.code = RowErrorCode::kNotAnImage, .detail = std::move(detail)}; }
RowError cut_header(std::string_view format) {
  return {.code = RowErrorCode::kTruncated, .detail = fmt::format("the {} header is cut", format)};
}
RowError unsupported(std::string detail) { return {.code = RowErrorCode::kUnsupportedFormat, .detail = std::move(detail)}; }

RowResult<ImageHeader> make_header(ImageFormat format, uint32_t width, uint32_t height) {
  if (width == 0 || height == 0 || width > 0x7FFFFFFF || height > 0x7FFFFFFF) {
    return not_an_image(fmt::format("impossible size: {}x{}", width, height));
  }
  return ImageHeader{format, static_cast<int>(width), static_cast<int>(height)};
}

// Baseline, extended and progressive frames, Huffman or arithmetic. Lossless and hierarchical ones are left out although newer
// releases of libjpeg-turbo decode some of them: what becomes of a row must not depend on the release.
constexpr bool is_decodable_frame(uint32_t marker) {
  return marker == 0xC0 || marker == 0xC1 || marker == 0xC2 || marker == 0xC9 || marker == 0xCA;
}

RowResult<ImageHeader> probe_jpeg(ByteView bytes) {
  JpegSegments segments(bytes);
  while (true) {
    switch (segments.next()) {
      case JpegSegments::Step::kTruncated:
        return cut_header("JPEG");
      case JpegSegments::Step::kDamaged:
      case JpegSegments::Step::kScan:
        return not_an_image("a JPEG without a frame header");
      case JpegSegments::Step::kSegment:
        break;
    }
    if (!is_start_of_frame(segments.marker())) {
      continue;
    }
    if (!is_decodable_frame(segments.marker())) {
      return unsupported(fmt::format("JPEG with a frame of the kind SOF{}", segments.marker() - 0xC0));
    }
    const size_t body = segments.body_offset();
    if (segments.body_bytes() < 6) {
      return not_an_image("a JPEG frame header of a few bytes");
    }
    const uint32_t precision = bytes.u8(body);
    const uint32_t num_components = bytes.u8(body + 5);
    if (precision != 8) {
      return unsupported(fmt::format("JPEG of {} bits a sample", precision));
    }
    if (num_components != 1 && num_components != 3 && num_components != 4) {
      return unsupported(fmt::format("JPEG of {} components", num_components));
    }
    return make_header(ImageFormat::kJpeg, bytes.be16(body + 3), bytes.be16(body + 1));
  }
}

bool is_png_pixel_format(uint32_t bit_depth, uint32_t colour_type) {
  switch (colour_type) {
    case 0:
      return bit_depth == 1 || bit_depth == 2 || bit_depth == 4 || bit_depth == 8 || bit_depth == 16;
    case 3:
      return bit_depth == 1 || bit_depth == 2 || bit_depth == 4 || bit_depth == 8;
    case 2:
    case 4:
    case 6:
      return bit_depth == 8 || bit_depth == 16;
    default:
      return false;
  }
}

RowResult<ImageHeader> probe_png(ByteView bytes) {
  constexpr size_t kHeaderBytes = 8 + 4 + 4 + 13 + 4;  // Signature, then the whole IHDR chunk.
  if (bytes.size() >= 16 && (bytes.be32(8) != 13 || !bytes.starts_with(12, "IHDR"))) {
    return not_an_image("a PNG without IHDR at its beginning");
  }
  if (!bytes.covers(0, kHeaderBytes)) {
    return cut_header("PNG");
  }
  if (!is_png_pixel_format(bytes.u8(24), bytes.u8(25)) || bytes.u8(26) != 0 || bytes.u8(27) != 0 || bytes.u8(28) > 1) {
    return not_an_image("a PNG header that the standard does not know");
  }
  return make_header(ImageFormat::kPng, bytes.be32(16), bytes.be32(20));
}

RowResult<ImageHeader> probe_webp(ByteView bytes) {
  constexpr size_t kChunk = 20;  // First byte after RIFF, size, WEBP, chunk name, chunk size.
  if (!bytes.covers(0, kChunk)) {
    return cut_header("WebP");
  }
  if (bytes.starts_with(12, "VP8 ")) {
    if (!bytes.covers(kChunk, 10)) {
      return cut_header("WebP");
    }
    if ((bytes.u8(kChunk) & 1U) != 0 || !bytes.starts_with(kChunk + 3, "\x9D\x01\x2A")) {
      return not_an_image("a WebP whose VP8 data start with no key frame");
    }
    return make_header(ImageFormat::kWebp, bytes.le16(kChunk + 6) & 0x3FFFU, bytes.le16(kChunk + 8) & 0x3FFFU);
  }
  if (bytes.starts_with(12, "VP8L")) {
    if (!bytes.covers(kChunk, 5)) {
      return cut_header("WebP");
    }
    if (bytes.u8(kChunk) != 0x2F) {
      return not_an_image("a WebP whose VP8L data lack their signature");
    }
    const uint32_t bits = bytes.le32(kChunk + 1);
    return make_header(ImageFormat::kWebp, (bits & 0x3FFFU) + 1, ((bits >> 14) & 0x3FFFU) + 1);
  }
  if (bytes.starts_with(12, "VP8X")) {
    if (!bytes.covers(kChunk, 10)) {
      return cut_header("WebP");
    }
    return make_header(ImageFormat::kWebp, bytes.le24(kChunk + 4) + 1, bytes.le24(kChunk + 7) + 1);
  }
  return not_an_image("a WebP whose first chunk is none of VP8, VP8L and VP8X");
}

// ISO base media file: the brands of its ftyp box name AVIF.
bool is_avif(ByteView bytes) {
  if (!bytes.covers(0, 12) || !bytes.starts_with(4, "ftyp")) {
    return false;
  }
  const size_t end = std::min<size_t>(bytes.be32(0), bytes.size());
  for (size_t brand = 8; brand + 4 <= end; brand += 4) {
    if (bytes.starts_with(brand, "avif") || bytes.starts_with(brand, "avis")) {
      return true;
    }
  }
  return false;
}

// A file cut within its magic bytes: what is left could be the beginning of a picture.
bool could_begin_a_picture(ByteView bytes) {
  constexpr std::array kMagics = {kJpegMagic, kPngMagic, "RIFF"sv, "GIF8"sv};
  const std::string_view text = bytes.text(0, bytes.size());
  return std::ranges::any_of(kMagics, [&](std::string_view magic) { return magic.starts_with(text); }) ||
         (text.starts_with("RIFF") && "WEBP"sv.starts_with(text.substr(std::min<size_t>(text.size(), 8))));
}

RowResult<ImageHeader> probe_by_magic(ByteView bytes) {
  if (bytes.size() == 0) {
    return not_an_image("no bytes");
  }
  if (bytes.starts_with(0, kJpegMagic)) {
    return probe_jpeg(bytes);
  }
  if (bytes.starts_with(0, kPngMagic)) {
    return probe_png(bytes);
  }
  if (bytes.starts_with(0, "RIFF") && bytes.starts_with(8, "WEBP")) {
    return probe_webp(bytes);
  }
  if (bytes.starts_with(0, "GIF87a") || bytes.starts_with(0, "GIF89a")) {
    return unsupported("GIF");
  }
  if (is_avif(bytes)) {
    return unsupported("AVIF");
  }
  if (bytes.size() < 12 && could_begin_a_picture(bytes)) {
    return cut_header("picture");
  }
  return not_an_image("no known magic bytes");
}

std::optional<RowError> violated_limit(const ImageHeader& header, const ImageLimits& limits) {
  const int64_t pixels = static_cast<int64_t>(header.width) * header.height;
  const auto [shorter, longer] = std::minmax(header.width, header.height);
  const std::string size = fmt::format("{}x{}", header.width, header.height);
  if (pixels > limits.max_pixels) {
    return RowError{.code = RowErrorCode::kBomb, .detail = fmt::format("more than {} pixels: {}", limits.max_pixels, size)};
  }
  if (shorter < limits.min_size) {
    return RowError{.code = RowErrorCode::kTooSmall, .detail = fmt::format("a side below {} pixels: {}", limits.min_size, size)};
  }
  if (limits.max_aspect > 0 && longer > limits.max_aspect * shorter) {
    return RowError{.code = RowErrorCode::kBadAspect, .detail = fmt::format("sides beyond {} : 1: {}", limits.max_aspect, size)};
  }
  return std::nullopt;
}

}  // namespace

std::string_view mime_type(ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return "image/jpeg";
    case ImageFormat::kPng:
      return "image/png";
    case ImageFormat::kWebp:
      return "image/webp";
    case ImageFormat::kGif:
      return "image/gif";
    case ImageFormat::kAvif:
      return "image/avif";
  }
  DARKROOM_CHECK(false, "an image format outside its enumeration:", static_cast<int>(format));
}

RowResult<ImageHeader> probe_image(std::span<const std::byte> bytes, const ImageLimits& limits) {
  RowResult<ImageHeader> header = probe_by_magic(ByteView(bytes));
  if (header.is_ok()) {
    if (std::optional<RowError> violation = violated_limit(*header, limits)) {
      return *std::move(violation);
    }
  }
  return header;
}

}  // namespace darkroom
