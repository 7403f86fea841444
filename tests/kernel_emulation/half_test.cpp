#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernel_cases.h"

// The emulation's __half: all its numbers, and all places where rounding to it turns over.

namespace darkroom::kernel_tests {
namespace {

constexpr uint16_t kInfinite = 0x7C00, kSign = 0x8000;

// The number by definition; infinity counts as 2^16, which it would be if the exponents went on.
double half_by_definition(uint16_t size) {
  const int exponent = size >> 10, fraction = size & 0x3FF;
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

uint16_t rounded(float value) { return __float2half_rn(value).bits; }

TEST(half, has_the_values_of_the_definition) {
  for (uint16_t size = 0; size < kInfinite; ++size) {
    const double want = half_by_definition(size);
    ASSERT_EQ(__half2float({size}), want) << size;
    ASSERT_EQ(__half2float({static_cast<uint16_t>(size | kSign)}), -want) << size;
    ASSERT_EQ(std::signbit(__half2float({static_cast<uint16_t>(size | kSign)})), true) << size;
  }
  EXPECT_EQ(__half2float({kInfinite}), std::numeric_limits<float>::infinity());
  EXPECT_EQ(__half2float({kInfinite | kSign}), -std::numeric_limits<float>::infinity());
  for (uint16_t fraction = 1; fraction < 0x400; ++fraction) {
    ASSERT_TRUE(std::isnan(__half2float({static_cast<uint16_t>(kInfinite | fraction)}))) << fraction;
    ASSERT_TRUE(std::isnan(__half2float({static_cast<uint16_t>(kInfinite | fraction | kSign)}))) << fraction;
  }
}

// Rounding never decreases, so the numbers themselves, what lies half way between neighbours and the floats beside that show all of it.
TEST(half, rounds_to_the_nearest_number_and_half_way_to_the_even_one) {
  for (uint16_t below = 0; below < kInfinite; ++below) {
    const auto above = static_cast<uint16_t>(below + 1);
    const auto middle = static_cast<float>((half_by_definition(below) + half_by_definition(above)) / 2);
    const uint16_t even = below % 2 == 0 ? below : above;
    for (const uint16_t sign : {uint16_t{0}, kSign}) {
      const auto signed_as = [sign](float value) { return sign != 0 ? -value : value; };
      ASSERT_EQ(rounded(signed_as(static_cast<float>(half_by_definition(below)))), below | sign);
      ASSERT_EQ(rounded(signed_as(std::nextafter(middle, 0.0F))), below | sign) << middle;
      ASSERT_EQ(rounded(signed_as(middle)), even | sign) << middle;
      ASSERT_EQ(rounded(signed_as(std::nextafter(middle, 1e30F))), above | sign) << middle;
    }
  }
}

TEST(half, rounds_what_is_too_large_or_no_number) {
  for (const float large : {65536.0F, 65537.0F, 1e30F, std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(rounded(large), kInfinite) << large;
    EXPECT_EQ(rounded(-large), kInfinite | kSign) << large;
  }
  EXPECT_EQ(rounded(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(rounded(-std::numeric_limits<float>::denorm_min()), kSign);
  for (const uint32_t nan : {0x7F800001U, 0x7FC00000U, 0xFF800001U, 0xFFFFFFFFU}) {
    EXPECT_EQ(rounded(std::bit_cast<float>(nan)), 0x7FFF) << nan;
  }
}

#ifdef __FLT16_MANT_DIG__
TEST(half, agrees_with_the_compilers_own_type) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float got = __half2float({static_cast<uint16_t>(bits)});
    const auto want = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
    ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want)) << bits;
  }
  Draws draws(61);
  constexpr int kFloats = 1'000'000;
  for (int i = 0; i < kFloats; ++i) {
    // Any bits, of which few are in float16's range, and numbers from below its least to above its largest.
    const auto number = static_cast<float>(std::exp2(-27.0 + 44.0 * draws.uniform()));
    const auto bits = static_cast<uint32_t>(draws.bits());
    const float value = i % 2 == 0 ? std::bit_cast<float>(bits) : bits % 2 == 0 ? number : -number;
    const auto want = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(rounded(value), std::isnan(value) ? 0x7FFF : want) << value;
  }
}
#endif

}  // namespace
}  // namespace darkroom::kernel_tests
