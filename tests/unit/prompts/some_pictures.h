#pragma once

#include <string>

#include "darkroom/prompts/picture_record.h"

namespace darkroom {

/// Two pictures of one job.
inline PictureRecord some_record() {
  PictureRecord record;
  record.origin = {.version = "0.1.0",
                   .model = "models/tiny",
                   .weights = "ema",
                   .fingerprints = {{"unet", std::string(64, 'a')}, {"vae", std::string(64, 'b')}}};
  record.pictures.push_back(
      {.file = "apples/00000.png",
       .picture = {.fields = {.prompt = "ein Äpfel \"rot\"", .seed = 18'446'744'073'709'551'615U, .sampler = "ddim"}, .style = "photo"},
       .sha256 = std::string(64, 'c')});
  record.pictures.push_back({.file = "apples/00001.png",
                             .picture = {.fields = {.prompt = "a pear", .sampler = "ddim", .init_image = "a.png"}},
                             .init_image_sha256 = std::string(64, 'd'),
                             .sha256 = std::string(64, 'e')});
  return record;
}

}  // namespace darkroom
