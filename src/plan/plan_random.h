#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "darkroom/core/random.h"

namespace darkroom {

/// Draws of a plan's simulations: each a function of (seed, key, trial, index). They are no data on disk, so they have no Purpose.
class PlanRandom {
 public:
  PlanRandom(uint64_t seed, std::string_view key, uint32_t trial)
      : seed_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, key_(hash_key(key)), trial_(trial) {}

  /// In (0, 1).
  double uniform(uint32_t index) const {
    const auto words = philox4x32_10({index, trial_, static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)}, seed_);
    return (words[0] + 0.5) * 0x1p-32;
  }
  double exponential(uint32_t index, double mean) const { return -std::log(uniform(index)) * mean; }
  /// Standard normal (Box-Muller).
  double normal(uint32_t index) const {
    return std::sqrt(-2 * std::log(uniform(2 * index))) * std::cos(2 * std::numbers::pi * uniform(2 * index + 1));
  }
  /// Student's t (Bailey, "Polar Generation of Random Variates with the t-Distribution", 1994, in the form of Box-Muller).
  double student_t(uint32_t index, double degrees) const {
    const double radius_squared = degrees * std::expm1(-2 / degrees * std::log(uniform(2 * index)));
    return std::sqrt(radius_squared) * std::cos(2 * std::numbers::pi * uniform(2 * index + 1));
  }

 private:
  std::array<uint32_t, 2> seed_;
  uint64_t key_;
  uint32_t trial_;
};

}  // namespace darkroom
