#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace darkroom {

/// All that follows from the polynomial of a reflected CRC of 32 bits: bit i of a word is the coefficient of x^(31 - i).
struct CrcConstants {
  explicit constexpr CrcConstants(uint32_t polynomial);

  /// [k][b]: the remainder of byte b with k zero bytes behind it.
  std::array<std::array<uint32_t, 256>, 8> tables{};
  /// Move 16 bytes on by 64 and by 16 bytes: for their first eight bytes and for the other eight.
  std::array<uint64_t, 2> over_64_bytes{};
  std::array<uint64_t, 2> over_16_bytes{};
};

// A state is the checksum's complement. The two ways give the same state, so that a checksum does not depend on the processor.

/// In plain C++, eight bytes a step.
uint32_t crc_by_tables(const CrcConstants& constants, uint32_t state, const uint8_t* bytes, size_t num_bytes);

/// Whether this processor has the instruction of the other one.
bool has_carryless_products();

/// By the processor's carry-less products, 64 bytes a step. REQUIRES: has_carryless_products().
uint32_t crc_by_products(const CrcConstants& constants, uint32_t state, const uint8_t* bytes, size_t num_bytes);

constexpr uint32_t crc_times_x(uint32_t polynomial, uint32_t value) { return value >> 1 ^ ((value & 1U) != 0 ? polynomial : 0U); }

/// x^n modulo the polynomial.
constexpr uint32_t crc_power_of_x(uint32_t polynomial, int n) {
  uint32_t value = 0x80000000U;
  for (; n > 0; --n) {
    value = crc_times_x(polynomial, value);
  }
  return value;
}

constexpr CrcConstants::CrcConstants(uint32_t polynomial) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = crc_times_x(polynomial, value);
    }
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 255U];
    }
  }
  // The shift makes good for the product of two reflected words, which is reflected but one bit short.
  const auto factors = [polynomial](int num_bits) {
    return std::array<uint64_t, 2>{uint64_t{crc_power_of_x(polynomial, num_bits + 32)} << 1,
                                   uint64_t{crc_power_of_x(polynomial, num_bits - 32)} << 1};
  };
  over_64_bytes = factors(512);
  over_16_bytes = factors(128);
}

inline constexpr CrcConstants kCrc32Constants(0xedb88320U);
inline constexpr CrcConstants kCrc32cConstants(0x82f63b78U);

}  // namespace darkroom
