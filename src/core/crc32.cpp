#include "darkroom/core/crc32.h"

#include "crc32_blocks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace darkroom {
namespace {

// The constants that Intel publishes for this polynomial (reference below, its section on reflected CRCs).
static_assert(kCrc32Constants.over_64_bytes == std::array<uint64_t, 2>{0x154442bd4, 0x1c6e41596});
static_assert(kCrc32Constants.over_16_bytes == std::array<uint64_t, 2>{0x1751997d0, 0x0ccaa009e});

uint32_t load_little_endian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[3]) << 24 | static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[1]) << 8 | bytes[0];
}

uint32_t crc_of(const CrcConstants& constants, std::span<const std::byte> bytes, uint32_t crc) {
  static const bool use_products = has_carryless_products();
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  return ~(use_products ? crc_by_products(constants, ~crc, data, bytes.size()) : crc_by_tables(constants, ~crc, data, bytes.size()));
}

}  // namespace

uint32_t crc_by_tables(const CrcConstants& constants, uint32_t state, const uint8_t* bytes, size_t num_bytes) {
  const auto& tables = constants.tables;
  for (; num_bytes >= 8; bytes += 8, num_bytes -= 8) {
    const uint32_t first = state ^ load_little_endian(bytes);
    const uint32_t second = load_little_endian(bytes + 4);
    state = tables[7][first & 255U] ^ tables[6][first >> 8 & 255U] ^ tables[5][first >> 16 & 255U] ^ tables[4][first >> 24] ^
            tables[3][second & 255U] ^ tables[2][second >> 8 & 255U] ^ tables[1][second >> 16 & 255U] ^ tables[0][second >> 24];
  }
  for (; num_bytes > 0; ++bytes, --num_bytes) {
    state = state >> 8 ^ tables[0][(state ^ *bytes) & 255U];
  }
  return state;
}

#if defined(__x86_64__)
namespace {

__m128i load_16_bytes(const void* bytes) { return _mm_loadu_si128(static_cast<const __m128i*>(bytes)); }

// 16 bytes that have the remainder of `block` moved on by the distance of `factors`, joined with the 16 bytes that stand there.
__attribute__((target("pclmul"))) __m128i move_on(__m128i block, __m128i factors, __m128i there) {
  const __m128i first = _mm_clmulepi64_si128(block, factors, 0x00);
  const __m128i second = _mm_clmulepi64_si128(block, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(first, second), there);
}

}  // namespace

// Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009. Its last step, from 16 bytes to
// the remainder, is left to the tables.
__attribute__((target("pclmul"))) uint32_t crc_by_products(const CrcConstants& constants, uint32_t state, const uint8_t* bytes,
                                                           size_t num_bytes) {
  if (num_bytes < 64) {
    return crc_by_tables(constants, state, bytes, num_bytes);
  }
  __m128i blocks[4];
  for (int i = 0; i < 4; ++i) {
    blocks[i] = load_16_bytes(bytes + 16 * i);
  }
  blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  const __m128i over_64_bytes = load_16_bytes(constants.over_64_bytes.data());
  for (bytes += 64, num_bytes -= 64; num_bytes >= 64; bytes += 64, num_bytes -= 64) {
    for (int i = 0; i < 4; ++i) {
      blocks[i] = move_on(blocks[i], over_64_bytes, load_16_bytes(bytes + 16 * i));
    }
  }
  const __m128i over_16_bytes = load_16_bytes(constants.over_16_bytes.data());
  __m128i block = blocks[0];
  for (int i = 1; i < 4; ++i) {
    block = move_on(block, over_16_bytes, blocks[i]);
  }
  for (; num_bytes >= 16; bytes += 16, num_bytes -= 16) {
    block = move_on(block, over_16_bytes, load_16_bytes(bytes));
  }
  std::array<uint8_t, 16> last{};
  _mm_storeu_si128(reinterpret_cast<__m128i*>(last.data()), block);
  return crc_by_tables(constants, crc_by_tables(constants, 0, last.data(), last.size()), bytes, num_bytes);
}

bool has_carryless_products() { return __builtin_cpu_supports("pclmul") != 0; }
#else
uint32_t crc_by_products(const CrcConstants& constants, uint32_t state, const uint8_t* bytes, size_t num_bytes) {
  return crc_by_tables(constants, state, bytes, num_bytes);
}

bool has_carryless_products() { return false; }
#endif

uint32_t crc32(std::span<const std::byte> bytes, uint32_t crc) { return crc_of(kCrc32Constants, bytes, crc); }

uint32_t crc32(std::string_view text, uint32_t crc) { return crc32(std::as_bytes(std::span(text)), crc); }

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) { return crc_of(kCrc32cConstants, bytes, crc); }

uint32_t crc32c(std::string_view text, uint32_t crc) { return crc32c(std::as_bytes(std::span(text)), crc); }

}  // namespace darkroom
