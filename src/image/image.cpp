#include "darkroom/image/image.h"

#include "darkroom/core/check.h"

namespace darkroom {

Image Image::filled(int width, int height, int num_channels, uint8_t value) {
  DARKROOM_CHECK(width >= 0 && height >= 0, "a picture of negative size:", width, height);
  DARKROOM_CHECK(num_channels == 1 || num_channels == 3 || num_channels == 4, "a picture of so many channels:", num_channels);
  Image image{width, height, num_channels, {}};
  image.pixels.assign(image.row_bytes() * static_cast<size_t>(height), value);
  return image;
}

}  // namespace darkroom
