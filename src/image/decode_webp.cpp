#include <cstdint>
#include <cstring>
#include <memory>

#include <webp/decode.h>
#include <webp/demux.h>

#include "byte_view.h"
#include "decoders.h"

namespace darkroom {
namespace {

// The size that the RIFF header announces reaches beyond the bytes.
bool is_cut(ByteView bytes) { return bytes.covers(0, 8) && bytes.le32(4) > bytes.size() - 8; }

RowError webp_error(std::span<const std::byte> bytes) {
  if (is_cut(ByteView(bytes))) {
    return {.code = RowErrorCode::kTruncated, .detail = "the WebP data end too early"};
  }
  return {.code = RowErrorCode::kDecodeFailed, .detail = "WebP: damaged data"};
}

constexpr const char* kOtherVersion = "WebP: the library is of another version than its headers";

void put_rgb(const uint8_t* pixels, int num_channels, int width, uint8_t* rgb) {
  if (num_channels == 3) {
    std::memcpy(rgb, pixels, static_cast<size_t>(width) * 3);
    return;
  }
  for (const uint8_t* end = rgb + static_cast<size_t>(width) * 3; rgb != end; rgb += 3, pixels += 4) {
    rgb[0] = pixels[0];
    rgb[1] = pixels[1];
    rgb[2] = pixels[2];
  }
}

void hand_out(const uint8_t* pixels, int num_channels, const ImageHeader& header, RowSink& sink) {
  const PixelRows wanted = sink.wanted_rows();
  const size_t row_bytes = static_cast<size_t>(header.width) * static_cast<size_t>(num_channels);
  for (int y = wanted.first; y < wanted.end; ++y) {
    put_rgb(pixels + static_cast<size_t>(y) * row_bytes, num_channels, header.width, sink.row_at(y));
  }
}

// The first frame where it fills the canvas, as every still does: no canvas, no composition. Alpha is decoded where there is some,
// so that damage in it is noticed.
std::optional<RowError> decode_frame(std::span<const std::byte> bytes, const WebPIterator& frame, const ImageHeader& header,
                                     RowSink& sink) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = kOtherVersion};
  }
  const int num_channels = frame.has_alpha != 0 ? 4 : 3;
  const size_t row_bytes = static_cast<size_t>(header.width) * static_cast<size_t>(num_channels);
  const size_t size = row_bytes * static_cast<size_t>(header.height);
  const auto pixels = std::make_unique_for_overwrite<uint8_t[]>(size);
  config.output.colorspace = num_channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = pixels.get(), .stride = static_cast<int>(row_bytes), .size = size};
  if (WebPDecode(frame.fragment.bytes, frame.fragment.size, &config) != VP8_STATUS_OK) {
    return webp_error(bytes);
  }
  hand_out(pixels.get(), num_channels, header, sink);
  return std::nullopt;
}

// A first frame smaller than its canvas, composed as Pillow sees it.
std::optional<RowError> decode_canvas(std::span<const std::byte> bytes, const WebPData& data, const ImageHeader& header, RowSink& sink) {
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = kOtherVersion};
  }
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  uint8_t* rgba = nullptr;  // Owned by the decoder.
  int timestamp = 0;
  if (decoder == nullptr || WebPAnimDecoderGetNext(decoder.get(), &rgba, &timestamp) == 0) {
    return webp_error(bytes);
  }
  hand_out(rgba, 4, header, sink);
  return std::nullopt;
}

bool fills_canvas(const WebPIterator& frame, const ImageHeader& header) {
  return frame.x_offset == 0 && frame.y_offset == 0 && frame.width == header.width && frame.height == header.height;
}

}  // namespace

std::optional<RowError> decode_webp_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink) {
  const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)> demuxer(WebPDemux(&data), WebPDemuxDelete);
  if (demuxer == nullptr) {
    return webp_error(bytes);
  }
  if (WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH) != static_cast<uint32_t>(header.width) ||
      WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT) != static_cast<uint32_t>(header.height)) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = "a WebP of two different sizes"};
  }
  WebPIterator frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) {
    return webp_error(bytes);
  }
  const std::unique_ptr<WebPIterator, void (*)(WebPIterator*)> release(&frame, WebPDemuxReleaseIterator);
  return fills_canvas(frame, header) ? decode_frame(bytes, frame, header, sink) : decode_canvas(bytes, data, header, sink);
}

}  // namespace darkroom
