#include <cstdint>
#include <memory>

#include <webp/demux.h>

#include "byte_view.h"
#include "decoders.h"

namespace darkroom {
namespace {

// The size that the RIFF header announces reaches beyond the bytes.
bool is_cut(ByteView bytes) { return bytes.covers(0, 8) && bytes.le32(4) > bytes.size() - 8; }

RowError webp_error(ByteView bytes) {
  if (is_cut(bytes)) {
    return {.code = RowErrorCode::kTruncated, .detail = "the WebP data end too early"};
  }
  return {.code = RowErrorCode::kDecodeFailed, .detail = "WebP: damaged data"};
}

}  // namespace

RowResult<Image> decode_webp(std::span<const std::byte> bytes, const ImageHeader& header) {
  // The animation decoder reads stills, too, and composes the first frame on its canvas as Pillow sees it.
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = "WebP: the library is of another version than its headers"};
  }
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;
  const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  WebPAnimInfo info;
  if (decoder == nullptr || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0) {
    return webp_error(ByteView(bytes));
  }
  if (info.canvas_width != static_cast<uint32_t>(header.width) || info.canvas_height != static_cast<uint32_t>(header.height)) {
    return RowError{.code = RowErrorCode::kDecodeFailed, .detail = "a WebP of two different sizes"};
  }
  uint8_t* rgba = nullptr;  // Owned by the decoder.
  int timestamp = 0;
  if (WebPAnimDecoderGetNext(decoder.get(), &rgba, &timestamp) == 0) {
    return webp_error(ByteView(bytes));
  }
  Image image = Image::filled(header.width, header.height, 3);
  for (uint8_t* rgb = image.pixels.data(); rgb != image.pixels.data() + image.pixels.size(); rgb += 3, rgba += 4) {
    rgb[0] = rgba[0];
    rgb[1] = rgba[1];
    rgb[2] = rgba[2];
  }
  return image;
}

}  // namespace darkroom
