#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace darkroom {

/// What a random draw is for. The numbers are part of the on-disk contract (docs/formats/randomness.md): never renumber.
enum class Purpose : uint8_t {
  kPosterior = 1,    ///< VAE posterior draw; index = element of the latent in C, H, W order.
  kNoise = 2,        ///< Diffusion noise; index as above.
  kTimestep = 3,     ///< Diffusion timestep; index 0.
  kCaptionDrop = 4,  ///< Caption dropout; index 0.
  kShuffle = 5,      ///< Order of blocks and of rows.
  kCrop = 6,         ///< Random crop: index 0 = x, 1 = y.
  kInit = 7,         ///< Weight initialisation; key = parameter name.
  kSelect = 8,       ///< Choice of rows for previews and evaluation.
};

/// 64-bit hash of a sample key: FNV-1a over the bytes, then the splitmix64 finaliser (docs/formats/randomness.md).
uint64_t hash_key(std::string_view key);

/// One block of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// The counter-based generator: every draw is a pure function of (seed, purpose, epoch, key, index), so batch size,
/// worker count, order and restarts change nothing. Thread safety: immutable after construction.
class CounterRandom {
 public:
  /// REQUIRES: epoch < 2^24.
  CounterRandom(uint64_t seed, Purpose purpose, uint32_t epoch, std::string_view key);
  CounterRandom(uint64_t seed, Purpose purpose, uint32_t epoch, uint64_t key_hash);

  /// 32 uniform bits of draw `index`. REQUIRES: index < 2^34.
  uint32_t bits(uint64_t index) const;
  /// Uniform in [0, 1): bits * 2^-32.
  double uniform(uint64_t index) const;
  /// Uniform integer in [0, bound): the high word of bits * bound. REQUIRES: bound > 0.
  uint32_t below(uint64_t index, uint32_t bound) const;
  /// Standard normal of draw `index`: Box-Muller over the pair of words (2*(index/2), 2*(index/2)+1); even indices take
  /// the cosine, odd ones the sine. Computed in double from IEEE basic operations only, then rounded to float, so the
  /// bits are the same on every processor.
  float normal(uint64_t index) const;
  /// out[i] = normal(first + i); faster than one by one.
  void fill_normal(std::span<float> out, uint64_t first = 0) const;

 private:
  std::array<uint32_t, 4> block(uint64_t index) const;

  std::array<uint32_t, 2> key_;
  uint32_t stream_;  // purpose in the top 8 bits, epoch in the low 24.
  uint64_t key_hash_;
};

/// A permutation of 0..size-1, Fisher-Yates from the top with below(i, i+1); the same for every caller.
/// Writes it into `out`.
void shuffled_order(const CounterRandom& random, std::span<uint32_t> out);

}  // namespace darkroom
