#include "kernels.h"
#include "vector_access.cuh"

namespace darkroom {
namespace {

constexpr int kThreads = 256;
constexpr float kRootHalf = 0.70710678118654752F;
constexpr float kInverseRootTwoPi = 0.39894228040143268F;

__device__ float normal_cdf(float x) { return 0.5F * (1.0F + erff(x * kRootHalf)); }

template <typename Scalar, int kCount>
__global__ void geglu(const Scalar* x, Scalar* y, int64_t num_rows, int64_t width) {
  const int64_t vectors = width / kCount, total = num_rows * vectors;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; index < total; index += stride) {
    const int64_t row = index / vectors, column = index % vectors * kCount;
    float values[kCount], gates[kCount];
    load<kCount>(x + row * 2 * width + column, values);
    load<kCount>(x + (row * 2 + 1) * width + column, gates);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] *= gates[i] * normal_cdf(gates[i]);
    }
    store<kCount>(y + row * width + column, values);
  }
}

template <typename Scalar, int kCount>
__global__ void geglu_gradient(const Scalar* grad_y, const Scalar* x, Scalar* grad_x, int64_t num_rows, int64_t width) {
  const int64_t vectors = width / kCount, total = num_rows * vectors;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; index < total; index += stride) {
    const int64_t row = index / vectors, column = index % vectors * kCount;
    float values[kCount], gates[kCount], grads[kCount];
    load<kCount>(x + row * 2 * width + column, values);
    load<kCount>(x + (row * 2 + 1) * width + column, gates);
    load<kCount>(grad_y + row * width + column, grads);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float cdf = normal_cdf(gates[i]);
      const float density = kInverseRootTwoPi * expf(-0.5F * gates[i] * gates[i]);
      const float grad_value = grads[i] * gates[i] * cdf;
      gates[i] = grads[i] * values[i] * (cdf + gates[i] * density);
      values[i] = grad_value;
    }
    store<kCount>(grad_x + row * 2 * width + column, values);
    store<kCount>(grad_x + (row * 2 + 1) * width + column, gates);
  }
}

template <typename Scalar, int kCount>
void forward(const void* x, void* y, int64_t num_rows, int64_t width, cudaStream_t stream) {
  launch_kernel(geglu<Scalar, kCount>, blocks_for(num_rows * width / kCount, kThreads, kMostBlocks), kThreads, stream,
                static_cast<const Scalar*>(x), static_cast<Scalar*>(y), num_rows, width);
}

template <typename Scalar, int kCount>
void backward(const void* grad_y, const void* x, void* grad_x, int64_t num_rows, int64_t width, cudaStream_t stream) {
  launch_kernel(geglu_gradient<Scalar, kCount>, blocks_for(num_rows * width / kCount, kThreads, kMostBlocks), kThreads, stream,
                static_cast<const Scalar*>(grad_y), static_cast<const Scalar*>(x), static_cast<Scalar*>(grad_x), num_rows, width);
}

}  // namespace

cudaError_t launch_geglu(Element element, const void* x, void* y, int64_t num_rows, int64_t width, cudaStream_t stream) {
  using Narrow = __nv_bfloat16;
  if (element == Element::kFloat32) {
    (width % kVector<float> == 0 ? forward<float, kVector<float>> : forward<float, 1>)(x, y, num_rows, width, stream);
  } else {
    (width % kVector<Narrow> == 0 ? forward<Narrow, kVector<Narrow>> : forward<Narrow, 1>)(x, y, num_rows, width, stream);
  }
  return cudaGetLastError();
}

cudaError_t launch_geglu_backward(Element element, const void* grad_y, const void* x, void* grad_x, int64_t num_rows, int64_t width,
                                  cudaStream_t stream) {
  using Narrow = __nv_bfloat16;
  if (element == Element::kFloat32) {
    (width % kVector<float> == 0 ? backward<float, kVector<float>> : backward<float, 1>)(grad_y, x, grad_x, num_rows, width, stream);
  } else {
    (width % kVector<Narrow> == 0 ? backward<Narrow, kVector<Narrow>> : backward<Narrow, 1>)(grad_y, x, grad_x, num_rows, width, stream);
  }
  return cudaGetLastError();
}

}  // namespace darkroom
