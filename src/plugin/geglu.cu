#include <algorithm>

#include "kernels.h"
#include "vector_access.cuh"

namespace darkroom {
namespace {

constexpr int kThreads = 256;
constexpr float kRootHalf = 0.70710678118654752F;
constexpr float kInverseRootTwoPi = 0.39894228040143268F;

__device__ float normal_cdf(float x) { return 0.5F * (1.0F + erff(x * kRootHalf)); }

// One thread a vector of kCount elements. Divisions of 32 bits: of 64 they take several times as many instructions.
template <typename Scalar, int kCount>
__global__ void geglu(const Scalar* x, Scalar* y, uint32_t total, uint32_t vectors) {
  const int64_t width = static_cast<int64_t>(vectors) * kCount;
  const uint32_t stride = gridDim.x * kThreads;
  for (uint32_t index = blockIdx.x * kThreads + threadIdx.x; index < total; index += stride) {
    const int64_t row = index / vectors, column = static_cast<int64_t>(index % vectors) * kCount;
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
__global__ void geglu_gradient(const Scalar* grad_y, const Scalar* x, Scalar* grad_x, uint32_t total, uint32_t vectors) {
  const int64_t width = static_cast<int64_t>(vectors) * kCount;
  const uint32_t stride = gridDim.x * kThreads;
  for (uint32_t index = blockIdx.x * kThreads + threadIdx.x; index < total; index += stride) {
    const int64_t row = index / vectors, column = static_cast<int64_t>(index % vectors) * kCount;
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

// Rows in as few launches as 32 bits can count their vectors: one, but for arrays of tens of gigabytes.
template <typename Launch>
cudaError_t launch_rows(int64_t num_rows, int64_t vectors, const Launch& launch) {
  if (vectors > int64_t{1} << 31) {
    return cudaErrorInvalidConfiguration;
  }
  const int64_t most_rows = std::max<int64_t>(kMostIndices / vectors, 1);
  for (int64_t first = 0; first < num_rows; first += most_rows) {
    const int64_t total = std::min(most_rows, num_rows - first) * vectors;
    launch(first, blocks_for(total, kThreads, kMostBlocks), static_cast<uint32_t>(total), static_cast<uint32_t>(vectors));
  }
  return cudaGetLastError();
}

template <typename Scalar, int kCount>
cudaError_t forward(const void* x, void* y, int64_t num_rows, int64_t width, cudaStream_t stream) {
  return launch_rows(num_rows, width / kCount, [=](int64_t first_row, unsigned blocks, uint32_t total, uint32_t vectors) {
    launch_kernel(geglu<Scalar, kCount>, blocks, kThreads, stream, static_cast<const Scalar*>(x) + first_row * 2 * width,
                  static_cast<Scalar*>(y) + first_row * width, total, vectors);
  });
}

template <typename Scalar, int kCount>
cudaError_t backward(const void* grad_y, const void* x, void* grad_x, int64_t num_rows, int64_t width, cudaStream_t stream) {
  return launch_rows(num_rows, width / kCount, [=](int64_t first_row, unsigned blocks, uint32_t total, uint32_t vectors) {
    launch_kernel(geglu_gradient<Scalar, kCount>, blocks, kThreads, stream, static_cast<const Scalar*>(grad_y) + first_row * width,
                  static_cast<const Scalar*>(x) + first_row * 2 * width, static_cast<Scalar*>(grad_x) + first_row * 2 * width, total,
                  vectors);
  });
}

template <typename Scalar>
cudaError_t forward_for(const void* x, void* y, int64_t num_rows, int64_t width, cudaStream_t stream) {
  constexpr int kWide = kVector<Scalar>;
  return (width % kWide == 0 ? forward<Scalar, kWide> : forward<Scalar, 1>)(x, y, num_rows, width, stream);
}

template <typename Scalar>
cudaError_t backward_for(const void* grad_y, const void* x, void* grad_x, int64_t num_rows, int64_t width, cudaStream_t stream) {
  constexpr int kWide = kVector<Scalar>;
  return (width % kWide == 0 ? backward<Scalar, kWide> : backward<Scalar, 1>)(grad_y, x, grad_x, num_rows, width, stream);
}

}  // namespace

cudaError_t launch_geglu(Element element, const void* x, void* y, int64_t num_rows, int64_t width, cudaStream_t stream) {
  const auto run = element == Element::kFloat32   ? forward_for<float>
                   : element == Element::kFloat16 ? forward_for<__half>
                                                  : forward_for<__nv_bfloat16>;
  return run(x, y, num_rows, width, stream);
}

cudaError_t launch_geglu_backward(Element element, const void* grad_y, const void* x, void* grad_x, int64_t num_rows, int64_t width,
                                  cudaStream_t stream) {
  const auto run = element == Element::kFloat32   ? backward_for<float>
                   : element == Element::kFloat16 ? backward_for<__half>
                                                  : backward_for<__nv_bfloat16>;
  return run(grad_y, x, grad_x, num_rows, width, stream);
}

}  // namespace darkroom
