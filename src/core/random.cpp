#include "darkroom/core/random.h"

#include <numeric>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/counter_draw.h"

namespace darkroom {

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
  const PhiloxBlock block = philox_block({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return {block.words[0], block.words[1], block.words[2], block.words[3]};
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
    const NormalPair first_pair = normal_pair(words[0], words[1]);
    const NormalPair second_pair = normal_pair(words[2], words[3]);
    out[done] = first_pair.even;
    out[done + 1] = first_pair.odd;
    out[done + 2] = second_pair.even;
    out[done + 3] = second_pair.odd;
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
