#include "darkroom/image/watermark.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr int kFirstFrequency = 8;  // Half waves a side: lower ones are large areas of the picture, whose values clip together.
constexpr int kNumFrequencies = 24;
constexpr size_t kNumPlaces = static_cast<size_t>(kNumFrequencies) * kNumFrequencies;
constexpr size_t kNumBits = 32;
constexpr double kLatticeStep = 0.24;  // Of a frequency's amplitude, in steps of 255.
constexpr int kNumPasses = 2;          // The second one mends what rounding and clipping to 8 bits took from the first.
constexpr int kLeastRight = 28;

/// What is fixed of each frequency: which bit it says, and where its lattice lies.
struct Places {
  std::array<uint8_t, kNumPlaces> bit;
  std::array<double, kNumPlaces> shift;
};

// SplitMix64 (Steele, Lea and Flood 2014).
uint64_t draw(uint64_t& state) {
  state += 0x9E3779B97F4A7C15U;
  uint64_t z = state;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

Places make_places() {
  Places places{};
  uint64_t state = kWatermarkBits;
  for (size_t i = 0; i < kNumPlaces; ++i) {
    places.bit[i] = static_cast<uint8_t>(i % kNumBits);
    places.shift[i] = kLatticeStep * static_cast<double>(draw(state) >> 11U) * 0x1.0p-53;
  }
  for (size_t i = kNumPlaces - 1; i > 0; --i) {
    std::swap(places.bit[i], places.bit[draw(state) % (i + 1)]);
  }
  return places;
}

const Places& places() {
  static const Places made = make_places();
  return made;
}

bool wanted_bit(uint8_t bit) { return ((kWatermarkBits >> (kNumBits - 1 - bit)) & 1U) != 0; }

/// waves[x * kNumFrequencies + f]: the cosines of the DCT-II, of mean square 1.
std::vector<double> waves_of(int side) {
  std::vector<double> waves(static_cast<size_t>(side) * kNumFrequencies);
  for (int x = 0; x < side; ++x) {
    for (int f = 0; f < kNumFrequencies; ++f) {
      const double phase = std::numbers::pi * (kFirstFrequency + f) * (x + 0.5) / side;
      waves[static_cast<size_t>(x) * kNumFrequencies + static_cast<size_t>(f)] = std::numbers::sqrt2 * std::cos(phase);
    }
  }
  return waves;
}

using Amplitudes = std::array<double, kNumPlaces>;  // [down * kNumFrequencies + across].

double brightness(const uint8_t* pixel) { return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]; }

Amplitudes analyse(const Image& image, const std::vector<double>& across, const std::vector<double>& down) {
  Amplitudes amplitudes{};
  for (int y = 0; y < image.height; ++y) {
    std::array<double, kNumFrequencies> row{};
    for (int x = 0; x < image.width; ++x) {
      const double value = brightness(image.row(y) + static_cast<ptrdiff_t>(x) * 3);
      const double* wave = across.data() + static_cast<size_t>(x) * kNumFrequencies;
      for (size_t f = 0; f < kNumFrequencies; ++f) {
        row[f] += value * wave[f];
      }
    }
    const double* wave = down.data() + static_cast<size_t>(y) * kNumFrequencies;
    for (size_t i = 0; i < kNumPlaces; ++i) {
      amplitudes[i] += wave[i / kNumFrequencies] * row[i % kNumFrequencies];
    }
  }
  for (double& amplitude : amplitudes) {
    amplitude /= static_cast<double>(image.width) * image.height;
  }
  return amplitudes;
}

void add_waves(Image& image, const Amplitudes& amplitudes, const std::vector<double>& across, const std::vector<double>& down) {
  for (int y = 0; y < image.height; ++y) {
    std::array<double, kNumFrequencies> row{};
    const double* wave = down.data() + static_cast<size_t>(y) * kNumFrequencies;
    for (size_t i = 0; i < kNumPlaces; ++i) {
      row[i % kNumFrequencies] += wave[i / kNumFrequencies] * amplitudes[i];
    }
    for (int x = 0; x < image.width; ++x) {
      const double* place = across.data() + static_cast<size_t>(x) * kNumFrequencies;
      double change = 0.0;
      for (size_t f = 0; f < kNumFrequencies; ++f) {
        change += row[f] * place[f];
      }
      uint8_t* pixel = image.row(y) + static_cast<ptrdiff_t>(x) * 3;
      for (int c = 0; c < 3; ++c) {
        pixel[c] = static_cast<uint8_t>(std::clamp(std::lround(pixel[c] + change), 0L, 255L));
      }
    }
  }
}

// How far each amplitude is from the nearest value that says its bit: lattices of 0 and of 1 lie half a step apart.
Amplitudes distances(const Amplitudes& amplitudes) {
  Amplitudes changes{};
  for (size_t i = 0; i < kNumPlaces; ++i) {
    const double origin = places().shift[i] + (wanted_bit(places().bit[i]) ? kLatticeStep / 2 : 0.0);
    const double nearest = origin + kLatticeStep * std::round((amplitudes[i] - origin) / kLatticeStep);
    changes[i] = nearest - amplitudes[i];
  }
  return changes;
}

}  // namespace

bool add_watermark(Image& image) {
  DARKROOM_CHECK(image.num_channels == 3, "a picture to be marked is RGB, got channels:", image.num_channels);
  if (std::min(image.width, image.height) < kMinWatermarkSide) {
    return false;
  }
  const std::vector<double> across = waves_of(image.width);
  const std::vector<double> down = waves_of(image.height);
  for (int pass = 0; pass < kNumPasses; ++pass) {
    add_waves(image, distances(analyse(image, across, down)), across, down);
  }
  return true;
}

WatermarkReading read_watermark(const Image& image) {
  DARKROOM_CHECK(image.num_channels == 3 && image.width > 0 && image.height > 0,
                 "a picture with a mark is RGB, got channels:", image.num_channels);
  const Amplitudes amplitudes = analyse(image, waves_of(image.width), waves_of(image.height));
  std::array<double, kNumBits> votes{};  // Above 0: the bit is 0.
  for (size_t i = 0; i < kNumPlaces; ++i) {
    const double phase = (amplitudes[i] - places().shift[i]) / kLatticeStep;
    votes[places().bit[i]] += std::cos(2 * std::numbers::pi * phase);
  }
  WatermarkReading reading;
  for (size_t bit = 0; bit < kNumBits; ++bit) {
    reading.bits = (reading.bits << 1U) | (votes[bit] < 0.0 ? 1U : 0U);
  }
  reading.num_right = static_cast<int>(kNumBits) - std::popcount(reading.bits ^ kWatermarkBits);
  reading.is_marked = reading.num_right >= kLeastRight;
  return reading;
}

}  // namespace darkroom
