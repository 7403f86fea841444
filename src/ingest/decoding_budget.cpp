#include "darkroom/ingest/decoding_budget.h"

#include <utility>

#include "darkroom/image/decoding_memory.h"

namespace darkroom {
namespace {

class BoundedDecoder : public PictureDecoder {
 public:
  BoundedDecoder(DecodingBudget& budget, std::unique_ptr<PictureDecoder> decoder, std::stop_token stop)
      : budget_(budget), decoder_(std::move(decoder)), stop_(std::move(stop)) {}

  Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) override {
    DARKROOM_ASSIGN_OR_RETURN(const MemoryLease lease,
                              take(bytes, limits, [&](const ImageHeader& header) { return decoding_bytes(bytes, header); }));
    return decoder_->check(bytes, limits);
  }

  Result<RowResult<DecodedSize>> transform(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                           const CropDraw& draw, std::span<uint8_t> out_hwc) override {
    DARKROOM_ASSIGN_OR_RETURN(const MemoryLease lease,
                              take(bytes, limits, [&](const ImageHeader& header) { return transforming_bytes(bytes, header, options); }));
    return decoder_->transform(bytes, options, limits, draw, out_hwc);
  }

  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte> bytes, const DecodedSize& size, const ImageLimits& limits,
                                           std::span<uint8_t> out_hwc) override {
    DARKROOM_ASSIGN_OR_RETURN(const MemoryLease lease,
                              take(bytes, limits, [&](const ImageHeader& header) { return resizing_bytes(bytes, header); }));
    return decoder_->resize_to(bytes, size, limits, out_hwc);
  }

 private:
  template <typename BytesOf>
  Result<MemoryLease> take(std::span<const std::byte> bytes, const ImageLimits& limits, BytesOf bytes_of) {
    const RowResult<ImageHeader> header = probe_image(bytes, limits);
    if (!header.is_ok()) {
      return MemoryLease();
    }
    auto lease = budget_.acquire(bytes_of(*header), stop_);
    if (!lease) {
      return Status::cancelled("stopped before a picture was decoded");
    }
    return *std::move(lease);
  }

  DecodingBudget& budget_;
  const std::unique_ptr<PictureDecoder> decoder_;
  const std::stop_token stop_;
};

}  // namespace

std::optional<MemoryLease> DecodingBudget::acquire(size_t num_bytes, std::stop_token stop) {
  return num_bytes == 0 ? std::optional(MemoryLease()) : memory_.acquire(num_bytes, std::move(stop));
}

std::unique_ptr<PictureDecoder> decoder_within(DecodingBudget& budget, std::unique_ptr<PictureDecoder> decoder, std::stop_token stop) {
  return std::make_unique<BoundedDecoder>(budget, std::move(decoder), std::move(stop));
}

}  // namespace darkroom
