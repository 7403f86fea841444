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

// A first frame on its canvas, which is black around it as Pillow sees it: libwebp's own composition would take three canvases for that.
void hand_out(const uint8_t* pixels, int num_channels, const WebPIterator& frame, const ImageHeader& header, RowSink& sink) {
  const PixelRows wanted = sink.wanted_rows();
  const size_t row_bytes = static_cast<size_t>(frame.width) * static_cast<size_t>(num_channels);
  for (int y = wanted.first; y < wanted.end; ++y) {
    uint8_t* const row = sink.row_at(y);
    if (frame.width != header.width || frame.height != header.height) {
      std::memset(row, 0, static_cast<size_t>(header.width) * 3);
    }
    if (y >= frame.y_offset && y < frame.y_offset + frame.height) {
      put_rgb(pixels + static_cast<size_t>(y - frame.y_offset) * row_bytes, num_channels, frame.width,
              row + static_cast<size_t>(frame.x_offset) * 3);
    }
  }
}

// Alpha is decoded where there is some, so that damage in it is noticed.
std::optional<RowError> decode_frame(std::span<const std::byte> bytes, const WebPIterator& frame, const ImageHeader& header,
                                     RowSink& sink) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = "WebP: the library is of another version than its headers"};
  }
  const int num_channels = frame.has_alpha != 0 ? 4 : 3;
  const size_t row_bytes = static_cast<size_t>(frame.width) * static_cast<size_t>(num_channels);
  const size_t size = row_bytes * static_cast<size_t>(frame.height);
  const auto pixels = std::make_unique_for_overwrite<uint8_t[]>(size);
  config.output.colorspace = num_channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = pixels.get(), .stride = static_cast<int>(row_bytes), .size = size};
  const VP8StatusCode status = WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  if (status == VP8_STATUS_OUT_OF_MEMORY) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = "WebP: the picture takes more memory than there is"};
  }
  if (status != VP8_STATUS_OK) {
    return webp_error(bytes);
  }
  hand_out(pixels.get(), num_channels, frame, header, sink);
  return std::nullopt;
}

bool is_on_canvas(const WebPIterator& frame, const ImageHeader& header) {
  return frame.width >= 1 && frame.height >= 1 && frame.x_offset >= 0 && frame.y_offset >= 0 &&
         frame.width <= header.width - frame.x_offset && frame.height <= header.height - frame.y_offset;
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
  if (!is_on_canvas(frame, header)) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = "a WebP with a frame beyond its canvas"};
  }
  return decode_frame(bytes, frame, header, sink);
}

}  // namespace darkroom
