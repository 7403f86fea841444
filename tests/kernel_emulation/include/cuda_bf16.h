#pragma once

#include <bit>
#include <cstdint>

#include "cuda_runtime_api.h"

/// The upper half of a float.
struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

/// Rounded to nearest, ties to even; any NaN becomes 0x7FFF, as on a GPU.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return {0x7FFF};
  }
  return {static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}
