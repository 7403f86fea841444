#include "darkroom/core/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "darkroom/core/sha256_blocks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace darkroom {
namespace {

constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 | static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

void absorb_block(Sha256State& state, const uint8_t* block) {
  std::array<uint32_t, 64> w{};
  for (size_t t = 0; t < 16; ++t) {
    w[t] = load_big_endian(block + 4 * t);
  }
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t temp1 = h + sum1 + ((e & f) ^ (~e & g)) + kRoundConstants[t] + w[t];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t temp2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + temp1;
    d = c;
    c = b;
    b = a;
    a = temp1 + temp2;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) {
    state[i] += added[i];
  }
}

#if defined(__x86_64__)
// The message schedule and two rounds an instruction, as in Intel's SHA extensions white paper (2013).
__attribute__((target("sha,sse4.1,ssse3"))) void absorb_sha_ni(Sha256State& state, const uint8_t* blocks, size_t num_blocks) {
  const __m128i byte_order = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data()));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data() + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; num_blocks > 0; --num_blocks, blocks += 64) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks + 16 * i)), byte_order);
    }
    for (int group = 0; group < 16; ++group) {
      const __m128i constants = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRoundConstants.data() + 4 * group));
      const __m128i current = w[group & 3];
      const __m128i sum = _mm_add_epi32(current, constants);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
      if (group < 12) {
        __m128i next = _mm_sha256msg1_epu32(current, w[(group + 1) & 3]);
        next = _mm_add_epi32(next, _mm_alignr_epi8(w[(group + 3) & 3], w[(group + 2) & 3], 4));
        w[group & 3] = _mm_sha256msg2_epu32(next, w[(group + 3) & 3]);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

}  // namespace

void absorb_portable(Sha256State& state, const uint8_t* blocks, size_t num_blocks) {
  for (; num_blocks > 0; --num_blocks, blocks += 64) {
    absorb_block(state, blocks);
  }
}

#if defined(__x86_64__)
bool has_sha_instructions() {
  // gcc 12's __builtin_cpu_supports does not know "sha". Processors too old for leaf 7 would answer with another leaf's bits.
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & bit_SHA) != 0 && __builtin_cpu_supports("sse4.1") != 0;
}

void absorb_with_instructions(Sha256State& state, const uint8_t* blocks, size_t num_blocks) { absorb_sha_ni(state, blocks, num_blocks); }
#else
bool has_sha_instructions() { return false; }

void absorb_with_instructions(Sha256State& state, const uint8_t* blocks, size_t num_blocks) { absorb_portable(state, blocks, num_blocks); }
#endif

Sha256::Sha256() : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::absorb(const uint8_t* blocks, size_t num_blocks) {
  static const bool use_instructions = has_sha_instructions();
  (use_instructions ? absorb_with_instructions : absorb_portable)(state_, blocks, num_blocks);
}

void Sha256::update(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t size = bytes.size();
  total_bytes_ += size;
  if (pending_bytes_ > 0) {
    const size_t taken = std::min(size, pending_.size() - pending_bytes_);
    std::memcpy(pending_.data() + pending_bytes_, data, taken);
    pending_bytes_ += taken;
    data += taken;
    size -= taken;
    if (pending_bytes_ < pending_.size()) {
      return;
    }
    absorb(pending_.data(), 1);
    pending_bytes_ = 0;
  }
  absorb(data, size / 64);
  pending_bytes_ = size % 64;
  if (pending_bytes_ > 0) {
    std::memcpy(pending_.data(), data + size - pending_bytes_, pending_bytes_);
  }
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::string Sha256::finish_hex() {
  const uint64_t total_bits = total_bytes_ * 8;
  std::array<uint8_t, 128> tail{};
  std::memcpy(tail.data(), pending_.data(), pending_bytes_);
  tail[pending_bytes_] = 0x80;
  const size_t num_blocks = pending_bytes_ + 9 <= 64 ? 1 : 2;
  for (size_t i = 0; i < 8; ++i) {
    tail[num_blocks * 64 - 1 - i] = static_cast<uint8_t>(total_bits >> (8 * i));
  }
  absorb(tail.data(), num_blocks);
  std::string hex;
  hex.reserve(64);
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) {
      hex += "0123456789abcdef"[word >> shift & 15U];
    }
  }
  return hex;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish_hex();
}

}  // namespace darkroom
