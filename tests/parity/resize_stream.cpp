#include <cstdint>
#include <cstdio>
#include <span>

#include "darkroom/image/resample.h"

// Resizes for tools/parity/resize_parity.py. A request on stdin is six little-endian int32 (width, height, channels,
// new width, new height, filter in the order of the enumeration) and the pixels; the answer on stdout is the new pixels.
// Ends at the end of the input; exits 1 on a broken request.
namespace {

bool read_all(std::span<uint8_t> bytes) { return std::fread(bytes.data(), 1, bytes.size(), stdin) == bytes.size(); }

bool answer(const int32_t (&request)[6]) {
  const auto [width, height, num_channels, new_width, new_height, filter] = request;
  darkroom::Image image = darkroom::Image::filled(width, height, num_channels);
  if (!read_all(image.pixels)) {
    return false;
  }
  const darkroom::Image resized = darkroom::resize(image, new_width, new_height, static_cast<darkroom::Filter>(filter));
  return std::fwrite(resized.pixels.data(), 1, resized.pixels.size(), stdout) == resized.pixels.size() && std::fflush(stdout) == 0;
}

}  // namespace

int main() {
  int32_t request[6];
  while (std::fread(request, sizeof request, 1, stdin) == 1) {
    if (!answer(request)) {
      std::fputs("resize_stream: a request without its pixels, or the answer could not be written\n", stderr);
      return 1;
    }
  }
  return 0;
}
