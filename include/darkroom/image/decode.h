#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "darkroom/core/row_error.h"
#include "darkroom/image/image.h"
#include "darkroom/image/probe.h"

namespace darkroom {

/// What happens to the EXIF orientation of a picture.
enum class Orientation : uint8_t {
  kIgnore,  ///< The stored pixels, as Pillow, torchvision and the published pipelines read them.
  kApply,   ///< Turned and mirrored as EXIF says (JPEG, PNG and WebP), as Pillow's ImageOps.exif_transpose; XMP is not read.
};

/// Decodes a JPEG, PNG or WebP to 8-bit RGB, equal to Pillow's `Image.open(...).convert("RGB")`: accurate IDCT and smooth
/// chroma upsampling, Adobe's inverted CMYK and YCCK, palettes looked up, alpha dropped, 16-bit colour cut to its high
/// byte, 16-bit grey saturated at 255, the first frame of an animation. Probes the header first, so `limits` hold before
/// any memory is taken; metadata is skipped, never inflated.
/// Errors: those of probe_image; kTruncated (the data end too early), kDecodeFailed (damaged data), kBomb (more scans
/// than a progressive JPEG can need), kUnsupportedFormat (a coding that Debian's libraries do not read).
/// Thread safety: pure; the memory taken is a few bytes a pixel.
RowResult<Image> decode_image(std::span<const std::byte> bytes, const ImageLimits& limits, Orientation orientation = Orientation::kIgnore);

/// Parses all data of the picture and keeps nothing of it: whether decode_image succeeds, and beyond that whether a JPEG's entropy-coded
/// data are whole, which decode_image, as Pillow, does not ask: bad codes and restart markers out of order are kDecodeFailed, blocks
/// that are missing before a marker kTruncated. Stray bytes between segments are no damage.
/// Errors: those of decode_image. Thread safety: pure; memory as decode_image, less the picture where rows can be had one by one.
RowResult<ImageHeader> check_image(std::span<const std::byte> bytes, const ImageLimits& limits);

/// The EXIF orientation 1..8 of a JPEG, PNG or WebP; 1 when it has none or an impossible one. Never reads outside `bytes`.
int read_orientation(std::span<const std::byte> bytes);

/// Turns and mirrors a picture that was stored with EXIF orientation `orientation` so that its top is up.
/// Anything but 2..8 returns it unchanged.
Image apply_orientation(Image image, int orientation);

}  // namespace darkroom
