#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "darkroom/image/picture_decoder.h"

namespace darkroom {

/// Decodes in this process, after `before` has been called; a failure of it is the decoder's loss.
class WatchedDecoder final : public PictureDecoder {
 public:
  explicit WatchedDecoder(std::function<Status()> before) : before_(std::move(before)) {}

  Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) override {
    DARKROOM_RETURN_IF_ERROR(before_());
    return decoder_->check(bytes, limits);
  }
  Result<RowResult<DecodedSize>> transform(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                           const CropDraw& draw, std::span<uint8_t> out_hwc) override {
    DARKROOM_RETURN_IF_ERROR(before_());
    return decoder_->transform(bytes, options, limits, draw, out_hwc);
  }
  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte> bytes, const DecodedSize& size, const ImageLimits& limits,
                                           std::span<uint8_t> out_hwc) override {
    DARKROOM_RETURN_IF_ERROR(before_());
    return decoder_->resize_to(bytes, size, limits, out_hwc);
  }

 private:
  const std::function<Status()> before_;
  const std::unique_ptr<PictureDecoder> decoder_ = decoder_in_process();
};

}  // namespace darkroom
