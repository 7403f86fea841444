#pragma once

#include <cstdint>

#include "darkroom/image/image.h"

namespace darkroom {

/// "DKRM": what every mark says.
inline constexpr uint32_t kWatermarkBits = 0x444B524D;
/// A picture with a shorter side is not marked: it has too few pixels to hide the mark in.
inline constexpr int kMinWatermarkSide = 128;

/// Marks an RGB picture as made by a machine (docs/formats/watermark.md): 576 low frequencies of its brightness are each rounded to one of
/// two lattices, which say a bit of kWatermarkBits (quantisation index modulation, Chen and Wornell 2001). Frequencies belong to the
/// picture as a whole, so that the mark outlives JPEG and resizing. The same picture gives the same bytes on one machine. False: the
/// picture is too small and stays as it is. REQUIRES: 3 channels. Thread safety: pure.
bool add_watermark(Image& image);

struct WatermarkReading {
  uint32_t bits = 0;
  int num_right = 0;       ///< Of 32, those that are kWatermarkBits'; 16 are to be expected of a picture without a mark.
  bool is_marked = false;  ///< At least 28: of a million pictures without a mark about ten look so.
};

/// Reads the mark of an RGB picture. REQUIRES: 3 channels, not empty.
WatermarkReading read_watermark(const Image& image);

}  // namespace darkroom
