#pragma once

#include <string>

#include "darkroom/image/image.h"

namespace darkroom {

/// Writes a baseline JPEG of a grey or RGB picture, of full colour resolution. The same arguments give the same bytes (with the same
/// libjpeg-turbo). REQUIRES: image not empty, sides up to 65,500; quality from 1 to 100.
std::string encode_jpeg(const Image& image, int quality = 95);

}  // namespace darkroom
