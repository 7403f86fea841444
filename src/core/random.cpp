#include "darkroom/core/random.h"

#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr uint32_t kPhiloxM0 = 0xD2511F53;
constexpr uint32_t kPhiloxM1 = 0xCD9E8D57;
constexpr uint32_t kPhiloxW0 = 0x9E3779B9;
constexpr uint32_t kPhiloxW1 = 0xBB67AE85;
constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kPi = 0x1.921fb54442d18p+1;

// Natural logarithm of (word + 0.5) * 2^-32, from +, *, / only: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), then
// ln m = 2 atanh(s), s = (m - 1) / (m + 1), by its series up to s^21 (|s| < 0.1716, remainder below 2^-60).
double log_of_word(uint32_t word) {
  const double value = static_cast<double>(word) + 0.5;
  int exponent = 0;
  double mantissa = std::frexp(value, &exponent);  // exact
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

// sin and cos of 2 * pi * word * 2^-32: the nearest multiple of pi/2 is taken off exactly in integers, the rest lies in
// [-pi/4, pi/4] and goes through the Taylor series up to x^17 and x^16.
SineCosine sine_cosine_of_word(uint32_t word) {
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

std::pair<float, float> normal_pair(uint32_t radius_word, uint32_t angle_word) {
  const double radius = std::sqrt(-2 * log_of_word(radius_word));
  const auto [sine, cosine] = sine_cosine_of_word(angle_word);
  return {static_cast<float>(radius * cosine), static_cast<float>(radius * sine)};
}

}  // namespace

uint64_t hash_key(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char byte : key) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3ULL;
  }
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kPhiloxM0) * counter[0];
    const uint64_t product1 = static_cast<uint64_t>(kPhiloxM1) * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kPhiloxW0;
    key[1] += kPhiloxW1;
  }
  return counter;
}

CounterRandom::CounterRandom(uint64_t seed, Purpose purpose, uint32_t epoch, uint64_t key_hash)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      stream_((static_cast<uint32_t>(purpose) << 24) | epoch),
      key_hash_(key_hash) {
  DARKROOM_CHECK(epoch < (1U << 24), "the epoch does not fit in 24 bits:", epoch);
}

CounterRandom::CounterRandom(uint64_t seed, Purpose purpose, uint32_t epoch, std::string_view key)
    : CounterRandom(seed, purpose, epoch, hash_key(key)) {}

std::array<uint32_t, 4> CounterRandom::block(uint64_t index) const {
  return philox4x32_10(
      {static_cast<uint32_t>(index / 4), stream_, static_cast<uint32_t>(key_hash_), static_cast<uint32_t>(key_hash_ >> 32)}, key_);
}

uint32_t CounterRandom::bits(uint64_t index) const { return block(index)[index % 4]; }

double CounterRandom::uniform(uint64_t index) const { return bits(index) * 0x1p-32; }

uint32_t CounterRandom::below(uint64_t index, uint32_t bound) const {
  DARKROOM_CHECK(bound > 0, "an empty range has no draw");
  return static_cast<uint32_t>((static_cast<uint64_t>(bits(index)) * bound) >> 32);
}

float CounterRandom::normal(uint64_t index) const {
  const auto words = block(index);
  const size_t pair = (index % 4) / 2 * 2;
  const auto [even, odd] = normal_pair(words[pair], words[pair + 1]);
  return index % 2 == 0 ? even : odd;
}

void CounterRandom::fill_normal(std::span<float> out, uint64_t first) const {
  size_t done = 0;
  while (done < out.size() && (first + done) % 4 != 0) {
    out[done] = normal(first + done);
    ++done;
  }
  for (; done + 4 <= out.size(); done += 4) {
    const auto words = block(first + done);
    std::tie(out[done], out[done + 1]) = normal_pair(words[0], words[1]);
    std::tie(out[done + 2], out[done + 3]) = normal_pair(words[2], words[3]);
  }
  for (; done < out.size(); ++done) {
    out[done] = normal(first + done);
  }
}

void shuffled_order(const CounterRandom& random, std::span<uint32_t> out) {
  std::iota(out.begin(), out.end(), 0U);
  for (size_t i = out.size(); i > 1; --i) {
    std::swap(out[i - 1], out[random.below(i - 1, static_cast<uint32_t>(i))]);
  }
}

}  // namespace darkroom
