#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/core/status.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/image.h"
#include "darkroom/image/probe.h"
#include "darkroom/image/resample.h"

namespace darkroom {

enum class Crop : uint8_t {
  kCenter,       ///< Offset floor((size - resolution) / 2): the published pipeline's.
  kCenterRound,  ///< Offset (size - resolution) / 2, half to even: torchvision's CenterCrop. One pixel on where the play is 4n + 3.
  kRandom,       ///< Offset floor(draw * (size - resolution + 1)).
};

/// The names that flags, recipes and files use: bilinear, bicubic, lanczos, hamming, box; center, center_round, random;
/// ignore, apply. Errors: kInvalidArgument, with the names that there are.
Result<Filter> parse_filter(std::string_view name);
Result<Crop> parse_crop(std::string_view name);
Result<Orientation> parse_orientation(std::string_view name);
std::string_view filter_name(Filter filter);
std::string_view crop_name(Crop crop);
std::string_view orientation_name(Orientation orientation);

/// The largest side of a picture that anyone may ask for, in pixels.
inline constexpr int kLargestSide = 16384;

/// How an encoded picture becomes the input of the autoencoder. The defaults are the published recipe.
struct TransformOptions {
  int resolution = 512;  ///< Side R of the square in pixels.
  Filter filter = Filter::kBilinear;
  Crop crop = Crop::kCenter;
  Orientation orientation = Orientation::kIgnore;

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Where a random crop lies, as fractions of the free play: two draws of Purpose::kCrop, each in [0, 1).
struct CropDraw {
  double x = 0;
  double y = 0;
};

struct TransformedImage {
  int width = 0;  ///< Of the encoded picture, orientation not applied.
  int height = 0;
  std::vector<float> chw;  ///< 3 * R * R values in [-1, 1], channel planes R, G, B.
};

/// Decodes to RGB, resizes the shorter side to R (the longer one to R * long / short, truncated), crops R x R and
/// normalises. A side that already fits is not resampled. `draw` is used by kRandom only.
/// Errors: those of decode_image; kBomb when the resized picture would have more than limits.max_pixels pixels.
/// REQUIRES: options.validate() is ok. Thread safety: pure.
RowResult<TransformedImage> transform_image(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                            const CropDraw& draw = {});

struct TransformedPixels {
  int width = 0;  ///< Of the encoded picture, orientation not applied.
  int height = 0;
  Image square;  ///< R x R, RGB.
};

/// transform_image before it normalises: a quarter of the bytes. Errors, REQUIRES and thread safety: those of transform_image.
RowResult<TransformedPixels> transform_pixels(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                              const CropDraw& draw = {});

/// The resize and crop of transform_image. REQUIRES: image not empty.
Image resize_and_crop(const Image& image, const TransformOptions& options, const CropDraw& draw = {});

/// out[c][y][x] = (value / 255 - 0.5) / 0.5 in float32, by a table of 256 entries.
/// REQUIRES: out.size() == width * height * num_channels.
void normalise_chw(const Image& image, std::span<float> out);

/// The inverse for pictures from the autoencoder: clamp(value / 2 + 0.5, 0, 1) * 255, rounded half to even as diffusers does.
/// REQUIRES: chw.size() == width * height * num_channels, num_channels 1 or 3.
Image denormalise_chw(std::span<const float> chw, int width, int height, int num_channels);

}  // namespace darkroom
