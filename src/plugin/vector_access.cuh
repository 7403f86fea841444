#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernel_launch.cuh"

namespace darkroom {

/// kCount elements that are read and written in one access (16 bytes for the vector forms), as floats in registers.
template <typename Scalar, int kCount>
struct alignas(sizeof(Scalar) * kCount) Packed {
  Scalar values[kCount];
};

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename Scalar>
__device__ Scalar from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

template <int kCount, typename Scalar>
__device__ void load(const Scalar* source, float (&values)[kCount]) {
  require_aligned(source, alignof(Packed<Scalar, kCount>));
  const auto packed = *reinterpret_cast<const Packed<Scalar, kCount>*>(source);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = to_float(packed.values[i]);
  }
}

template <int kCount, typename Scalar>
__device__ void store(Scalar* target, const float (&values)[kCount]) {
  Packed<Scalar, kCount> packed;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    packed.values[i] = from_float<Scalar>(values[i]);
  }
  require_aligned(target, alignof(Packed<Scalar, kCount>));
  *reinterpret_cast<Packed<Scalar, kCount>*>(target) = packed;
}

/// Elements of a 16-byte access.
template <typename Scalar>
constexpr int kVector = 16 / static_cast<int>(sizeof(Scalar));

}  // namespace darkroom
