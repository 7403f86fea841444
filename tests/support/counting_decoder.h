#pragma once

#include <memory>
#include <optional>
#include <span>

#include "darkroom/image/picture_decoder.h"

namespace darkroom {

/// Counts what it is asked for and lets a decoder in this process do it, or is lost.
class CountingDecoder final : public PictureDecoder {
 public:
  struct Seen {
    int num_opened = 0;
    int num_pictures = 0;
    std::optional<Status> lost = std::nullopt;
  };
  static Result<std::unique_ptr<PictureDecoder>> open(Seen& seen) {
    ++seen.num_opened;
    return std::unique_ptr<PictureDecoder>(std::make_unique<CountingDecoder>(seen));
  }
  explicit CountingDecoder(Seen& seen) : seen_(seen) {}

  Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) override {
    DARKROOM_RETURN_IF_ERROR(see());
    return decoder_->check(bytes, limits);
  }
  Result<RowResult<DecodedSize>> transform(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                           const CropDraw& draw, std::span<uint8_t> out_hwc) override {
    DARKROOM_RETURN_IF_ERROR(see());
    return decoder_->transform(bytes, options, limits, draw, out_hwc);
  }
  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte> bytes, const DecodedSize& size, const ImageLimits& limits,
                                           std::span<uint8_t> out_hwc) override {
    DARKROOM_RETURN_IF_ERROR(see());
    return decoder_->resize_to(bytes, size, limits, out_hwc);
  }

 private:
  Status see() {
    ++seen_.num_pictures;
    return seen_.lost.value_or(Status::ok());
  }

  Seen& seen_;
  const std::unique_ptr<PictureDecoder> decoder_ = decoder_in_process();
};

}  // namespace darkroom
