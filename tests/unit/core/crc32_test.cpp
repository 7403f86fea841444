#include "darkroom/core/crc32.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../../../src/core/crc32_blocks.h"
#include "darkroom/core/random.h"

namespace darkroom {
namespace {

constexpr uint32_t kIeeePolynomial = 0xedb88320U;
constexpr uint32_t kCastagnoliPolynomial = 0x82f63b78U;

/// The definition: one bit after the other.
uint32_t crc_bit_by_bit(uint32_t polynomial, uint32_t state, uint8_t byte) {
  state ^= byte;
  for (int bit = 0; bit < 8; ++bit) {
    state = (state & 1U) != 0 ? state >> 1 ^ polynomial : state >> 1;
  }
  return state;
}

std::vector<uint8_t> random_bytes(size_t num_bytes) {
  const CounterRandom random(3, Purpose::kSelect, 0, "crc");
  std::vector<uint8_t> bytes(num_bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(random.bits(i) >> 24);
  }
  return bytes;
}

using CrcWay = uint32_t (*)(const CrcConstants&, uint32_t, const uint8_t*, size_t);

/// Every size from 0 to 1,025 bytes at each place of a line of 16. The bytes end with their memory, so that AddressSanitizer sees a read
/// too far.
void expect_equals_bit_by_bit(CrcWay way, const CrcConstants& constants, uint32_t polynomial) {
  constexpr uint32_t kStart = 0x9e3779b9U;
  const std::vector<uint8_t> bytes = random_bytes(1025);
  uint32_t want = kStart;
  for (size_t num_bytes = 0; num_bytes <= bytes.size(); ++num_bytes) {
    for (size_t offset = 0; offset < 16; ++offset) {
      std::vector<uint8_t> placed(offset + num_bytes);
      std::copy_n(bytes.begin(), num_bytes, placed.data() + offset);
      ASSERT_EQ(way(constants, kStart, placed.data() + offset, num_bytes), want) << num_bytes << " bytes at " << offset;
    }
    if (num_bytes < bytes.size()) {
      want = crc_bit_by_bit(polynomial, want, bytes[num_bytes]);
    }
  }
}

// Check values of the catalogue of parametrised CRC algorithms (CRC-32/ISO-HDLC), and zlib's own.
TEST(Crc32, equals_the_published_values) {
  EXPECT_EQ(crc32(""), 0U);
  EXPECT_EQ(crc32("123456789"), 0xcbf43926U);
  EXPECT_EQ(crc32(std::string(32, '\0')), 0x190a55adU);
  EXPECT_EQ(crc32(std::string(1000000, 'a')), 0xdc25bfbcU);
}

// RFC 3720, appendix B.4.
TEST(Crc32, crc32c_equals_the_published_values) {
  const auto of = [](const std::string& text) { return crc32c(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(of(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(of("123456789"), 0xe3069283U);
}

TEST(Crc32, tables_equal_the_definition) {
  expect_equals_bit_by_bit(crc_by_tables, kCrc32Constants, kIeeePolynomial);
  expect_equals_bit_by_bit(crc_by_tables, kCrc32cConstants, kCastagnoliPolynomial);
}

TEST(Crc32, the_processors_products_equal_the_definition) {
  if (!has_carryless_products()) {
    GTEST_SKIP() << "this processor has no carry-less product: every checksum here comes from the tables";
  }
  expect_equals_bit_by_bit(crc_by_products, kCrc32Constants, kIeeePolynomial);
  expect_equals_bit_by_bit(crc_by_products, kCrc32cConstants, kCastagnoliPolynomial);
}

TEST(Crc32, goes_on_from_any_piece_to_the_next) {
  const std::vector<uint8_t> bytes = random_bytes(300);
  const auto all = std::as_bytes(std::span(bytes));
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    ASSERT_EQ(crc32(all.subspan(cut), crc32(all.first(cut))), crc32(all)) << cut;
    ASSERT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all)) << cut;
  }
}

TEST(Crc32, notices_any_flipped_bit) {
  std::vector<uint8_t> bytes = random_bytes(130);
  const uint32_t whole = crc32(std::as_bytes(std::span(bytes)));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    ASSERT_NE(crc32(std::as_bytes(std::span(bytes))), whole) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
  }
}

}  // namespace
}  // namespace darkroom
