#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/image/probe.h"
#include "darkroom/image/transform.h"

namespace darkroom {

/// Stored width and height of a picture, orientation not applied.
struct DecodedSize {
  int width = 0;
  int height = 0;
  bool operator==(const DecodedSize&) const = default;
};

/// Turns hostile bytes into pixels, or into a row's error. Two results in one: the outer Status fails where the decoder itself is lost
/// (the sandbox cannot be started again, a stop was requested) and ends the job, so that no row is counted as bad for it; the inner
/// RowError costs that row only. Thread safety: one worker's; not shared.
class PictureDecoder {
 public:
  virtual ~PictureDecoder() = default;

  /// check_image: parses all data of the picture, and makes no more pixels of them than that takes.
  virtual Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) = 0;

  /// transform_pixels into memory of the caller: `out_hwc` gets R rows of R pixels RGB. It is written only on success.
  /// REQUIRES: options.validate() is ok, out_hwc.size() == 3 * R * R.
  virtual Result<RowResult<DecodedSize>> transform(std::span<const std::byte> bytes, const TransformOptions& options,
                                                   const ImageLimits& limits, const CropDraw& draw, std::span<uint8_t> out_hwc) = 0;

  /// decode_image, then resize() to `size` with Lanczos, into memory of the caller: `out_hwc` gets rows of pixels RGB. The result is the
  /// stored size of the picture. It is written only on success.
  /// REQUIRES: sides of `size` from 1 to kLargestSide, out_hwc.size() == 3 * size.width * size.height.
  virtual Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte> bytes, const DecodedSize& size, const ImageLimits& limits,
                                                   std::span<uint8_t> out_hwc) = 0;
};

/// 3 * R * R: the bytes that PictureDecoder::transform fills.
size_t square_bytes(const TransformOptions& options);
/// 3 * width * height: the bytes that PictureDecoder::resize_to fills.
size_t picture_bytes(const DecodedSize& size);

/// Decodes in this process; the outer Status never fails. A damaged libjpeg, libpng or libwebp is a damaged process: see sandbox.h.
std::unique_ptr<PictureDecoder> decoder_in_process();

}  // namespace darkroom
