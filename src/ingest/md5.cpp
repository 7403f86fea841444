#include "md5.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace darkroom {
namespace {

constexpr size_t kMd5BlockBytes = 64;
constexpr std::array<int, 16> kMd5Rotations = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

/// T[i] of the RFC: the integer part of 2^32 * abs(sin(i + 1)).
const std::array<uint32_t, 64>& md5_sines() {
  static const std::array<uint32_t, 64> sines = [] {
    std::array<uint32_t, 64> made{};
    for (size_t i = 0; i < made.size(); ++i) {
      made[i] = static_cast<uint32_t>(std::floor(std::abs(std::sin(static_cast<double>(i + 1))) * 4294967296.0));
    }
    return made;
  }();
  return sines;
}

using Md5State = std::array<uint32_t, 4>;

void add_md5_block(Md5State& state, const std::byte* block) {
  const std::array<uint32_t, 64>& sines = md5_sines();
  std::array<uint32_t, 16> words;
  std::memcpy(words.data(), block, kMd5BlockBytes);  // Little-endian, as every processor that this is built for.
  auto [a, b, c, d] = state;
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t round = i / 16;
    const uint32_t mixed = round == 0 ? (b & c) | (~b & d) : round == 1 ? (d & b) | (~d & c) : round == 2 ? b ^ c ^ d : c ^ (b | ~d);
    const uint32_t word = round == 0 ? i : round == 1 ? (5 * i + 1) % 16 : round == 2 ? (3 * i + 5) % 16 : 7 * i % 16;
    const uint32_t turned = std::rotl(a + mixed + sines[i] + words[word], kMd5Rotations[4 * round + i % 4]);
    a = d;
    d = c;
    c = b;
    b += turned;
  }
  state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
}

}  // namespace

std::array<std::byte, 16> md5(std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little);
  Md5State state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  const uint64_t num_bits = 8 * static_cast<uint64_t>(bytes.size());
  for (; bytes.size() >= kMd5BlockBytes; bytes = bytes.subspan(kMd5BlockBytes)) {
    add_md5_block(state, bytes.data());
  }
  std::array<std::byte, 2 * kMd5BlockBytes> tail{};
  std::copy(bytes.begin(), bytes.end(), tail.begin());
  tail[bytes.size()] = std::byte{0x80};
  const size_t tail_bytes = bytes.size() + 9 <= kMd5BlockBytes ? kMd5BlockBytes : 2 * kMd5BlockBytes;
  std::memcpy(tail.data() + tail_bytes - sizeof num_bits, &num_bits, sizeof num_bits);
  for (size_t at = 0; at < tail_bytes; at += kMd5BlockBytes) {
    add_md5_block(state, tail.data() + at);
  }
  std::array<std::byte, 16> digest;
  std::memcpy(digest.data(), state.data(), digest.size());
  return digest;
}

}  // namespace darkroom
