#pragma once

#include <bit>
#include <cstdint>

#include "cuda_runtime_api.h"

/// IEEE 754's binary16: sign, five bits of exponent, ten of the fraction.
struct __half {
  uint16_t bits;
};

/// Exact; any NaN becomes 0x7FFFFFFF, as in CUDA's header.
inline float __half2float(__half value) {
  const uint32_t sign = (value.bits & 0x8000U) << 16, exponent = (value.bits >> 10) & 0x1FU, fraction = value.bits & 0x3FFU;
  if (exponent == 0x1F) {
    return std::bit_cast<float>(fraction != 0 ? 0x7FFFFFFFU : sign | 0x7F800000U);
  }
  if (exponent == 0) {  // Subnormal numbers, and zero: multiples of 2^-24.
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -size : size;
  }
  return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (fraction << 13));
}

/// Rounded to nearest, ties to even, from 65520 on to infinity; any NaN becomes 0x7FFF, as on a GPU.
inline __half __float2half_rn(float value) {
  const auto all = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (all >> 16) & 0x8000U, size = all & 0x7FFFFFFFU;
  if (size > 0x7F800000U) {
    return {0x7FFF};
  }
  if (size >= 0x47800000U) {  // From 2^16 on.
    return {static_cast<uint16_t>(sign | 0x7C00U)};
  }
  const auto exponent = static_cast<int>(size >> 23);
  if (exponent < 127 - 25) {  // Less than half of the least number.
    return {static_cast<uint16_t>(sign)};
  }
  const bool is_subnormal = exponent < 127 - 14;
  const uint32_t fraction = (size & 0x7FFFFFU) | (is_subnormal ? 0x800000U : 0);
  const int dropped = is_subnormal ? 13 + (127 - 14 - exponent) : 13;
  const uint32_t kept = fraction >> dropped, rest = fraction & ((1U << dropped) - 1), half = 1U << (dropped - 1);
  const uint32_t base = is_subnormal ? 0 : static_cast<uint32_t>(exponent - (127 - 15)) << 10;
  // A carry out of the fraction is the next exponent, at last infinity.
  return {static_cast<uint16_t>(sign | (base + kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1U : 0U)))};
}
