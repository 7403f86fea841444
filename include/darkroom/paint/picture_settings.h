#pragma once

#include <string>
#include <vector>

#include "darkroom/image/png.h"
#include "darkroom/paint/painter.h"

namespace darkroom {

/// What a picture's file tells of its painting beside the request.
struct PaintedWith {
  std::string sampler = {};
  std::string model = {};
  std::string weights = {};
  std::string start_latents = {};
  std::string init_image = {};
  NetworkPlace place = {};
};

/// What picture `index` of a request keeps of how it was painted, as PNG text. REQUIRES: index < request.prompts.size().
std::vector<PngText> picture_settings(const PaintRequest& request, const PaintedWith& with, size_t index, const Image& image);

}  // namespace darkroom
