#pragma once

#include <cmath>
#include <cstdint>

// The arithmetic of the counter-based draws (docs/formats/randomness.md), in one place for the CPU and for GPU kernels: this header
// compiles as C++17 and, under nvcc, for the device. It uses IEEE basic operations only; the including file must be compiled without
// contraction into fused multiply-adds, or the bits differ. Everybody else uses CounterRandom (random.h). Thread safety: pure functions.

#ifdef __CUDACC__
#define DARKROOM_HOST_DEVICE __host__ __device__
#else
#define DARKROOM_HOST_DEVICE
#endif

namespace darkroom {

/// Four words: a counter, or a block of draws.
struct PhiloxBlock {
  uint32_t words[4];
};

/// One block of Philox4x32-10 (Salmon et al. 2011).
DARKROOM_HOST_DEVICE inline PhiloxBlock philox_block(PhiloxBlock counter, uint32_t key_low, uint32_t key_high) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53;
  constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * counter.words[0];
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * counter.words[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.words[1] ^ key_low, static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.words[3] ^ key_high, static_cast<uint32_t>(product0)}};
    key_low += kWeyl0;
    key_high += kWeyl1;
  }
  return counter;
}

/// The block that holds draw `index` of a sample: `stream` is purpose << 24 or epoch.
DARKROOM_HOST_DEVICE inline PhiloxBlock draw_block(uint64_t seed, uint32_t stream, uint64_t key_hash, uint64_t index) {
  return philox_block({{static_cast<uint32_t>(index / 4), stream, static_cast<uint32_t>(key_hash), static_cast<uint32_t>(key_hash >> 32)}},
                      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

/// Natural logarithm of (word + 0.5) * 2^-32, from +, *, / only: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), then
/// ln m = 2 atanh(s), s = (m - 1) / (m + 1), by its series up to s^21 (|s| < 0.1716, remainder below 2^-60).
DARKROOM_HOST_DEVICE inline double log_of_word(uint32_t word) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  const double value = static_cast<double>(word) + 0.5;
  int exponent = 0;
  double mantissa = frexp(value, &exponent);  // Exact.
  if (mantissa < 0x1.6a09e667f3bcdp-1) {
    mantissa *= 2;
    exponent -= 1;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double sum = 1.0 / 21;
  for (int denominator = 19; denominator >= 1; denominator -= 2) {
    sum = sum * square + 1.0 / denominator;
  }
  return (exponent - 32) * kLn2 + 2 * s * sum;
}

struct SineCosine {
  double sine;
  double cosine;
};

/// sin and cos of 2 * pi * word * 2^-32: the nearest multiple of pi/2 is taken off exactly in integers, the rest lies in
/// [-pi/4, pi/4] and goes through the Taylor series up to x^17 and x^16.
DARKROOM_HOST_DEVICE inline SineCosine sine_cosine_of_word(uint32_t word) {
  constexpr double kPi = 0x1.921fb54442d18p+1;
  const uint32_t quadrant = (word + 0x20000000U) >> 30;
  const auto rest = static_cast<int32_t>(word - (quadrant << 30));
  const double x = static_cast<double>(rest) * (kPi * 0x1p-31);
  const double square = x * x;
  double sine = 1.0;
  double cosine = 1.0;
  for (int k = 8; k >= 1; --k) {
    sine = 1.0 - sine * square / ((2 * k) * (2 * k + 1));
    cosine = 1.0 - cosine * square / ((2 * k) * (2 * k - 1));
  }
  sine *= x;
  switch (quadrant & 3U) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

/// The normal draws of an even index and of the odd one after it.
struct NormalPair {
  float even;
  float odd;
};

/// Box-Muller over one pair of words.
DARKROOM_HOST_DEVICE inline NormalPair normal_pair(uint32_t radius_word, uint32_t angle_word) {
  const double radius = sqrt(-2 * log_of_word(radius_word));
  const SineCosine angle = sine_cosine_of_word(angle_word);
  return {static_cast<float>(radius * angle.cosine), static_cast<float>(radius * angle.sine)};
}

}  // namespace darkroom
