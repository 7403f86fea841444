#include "darkroom/ops/adamw_scalar.h"
#include "kernels.h"
#include "vector_access.cuh"

// Compiled without contraction into fused multiply-adds: the update has the CPU's bits.

namespace darkroom {
namespace {

constexpr int kThreads = 256;
constexpr int kUpdateVector = 4;

// The scalars of an update in the precision in which it is computed; the sequence of operations is that of ops' reference.
struct UpdateScalars {
  float gradient_scale, weight_keep, first_blend, second_keep, second_blend, root_bias_correction, epsilon, negative_step, ema_blend;
};

__device__ UpdateScalars rounded(const double* scalars) {
  const auto value = [&](int64_t place) { return static_cast<float>(scalars[place]); };
  return {value(AdamWScalar::kGradientScale), value(AdamWScalar::kWeightKeep),   value(AdamWScalar::kFirstBlend),
          value(AdamWScalar::kSecondKeep),    value(AdamWScalar::kSecondBlend),  value(AdamWScalar::kRootBiasCorrection),
          value(AdamWScalar::kEpsilon),       value(AdamWScalar::kNegativeStep), value(AdamWScalar::kEmaBlend)};
}

template <typename Gradient, int kCount>
__device__ void update_elements(const AdamWPointers& arrays, const UpdateScalars& s, int64_t at) {
  float weights[kCount], gradients[kCount], first[kCount], second[kCount], ema[kCount];
  load<kCount>(arrays.weights + at, weights);
  load<kCount>(static_cast<const Gradient*>(arrays.gradients) + at, gradients);
  load<kCount>(arrays.first_moment + at, first);
  load<kCount>(arrays.second_moment + at, second);
  if (arrays.ema != nullptr) {
    load<kCount>(arrays.ema + at, ema);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float gradient = gradients[i] * s.gradient_scale;
    first[i] = first[i] + s.first_blend * (gradient - first[i]);
    second[i] = second[i] * s.second_keep + s.second_blend * gradient * gradient;
    const float denominator = sqrtf(second[i]) / s.root_bias_correction + s.epsilon;
    weights[i] = weights[i] * s.weight_keep + s.negative_step * first[i] / denominator;
    if (arrays.ema != nullptr) {
      ema[i] = ema[i] - s.ema_blend * (ema[i] - weights[i]);
    }
  }
  store<kCount>(arrays.weights + at, weights);
  store<kCount>(arrays.first_moment + at, first);
  store<kCount>(arrays.second_moment + at, second);
  if (arrays.ema != nullptr) {
    store<kCount>(arrays.ema + at, ema);
  }
  if (arrays.compute != nullptr) {
    store<kCount>(static_cast<__nv_bfloat16*>(arrays.compute) + at, weights);
  }
}

template <typename Gradient>
__global__ void update(AdamWPointers arrays, const double* scalars, int64_t size) {
  if (!isfinite(scalars[AdamWScalar::kGradientScale])) {
    return;
  }
  const UpdateScalars values = rounded(scalars);
  const int64_t vectors = size / kUpdateVector, stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t index = thread; index < vectors; index += stride) {
    update_elements<Gradient, kUpdateVector>(arrays, values, index * kUpdateVector);
  }
  if (thread < size - vectors * kUpdateVector) {
    update_elements<Gradient, 1>(arrays, values, vectors * kUpdateVector + thread);
  }
}

// The sum of a block's values, added by halves, which is a fixed order; in thread 0, elsewhere 0.
__device__ double block_sum(double value) {
  DARKROOM_SHARED_ARRAY(double, values, kThreads);
  values[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      values[threadIdx.x] += values[threadIdx.x + half];
    }
  }
  return threadIdx.x == 0 ? values[0] : 0.0;
}

// A block a chunk.
template <typename Scalar>
__global__ void sum_squares(const Scalar* values, int64_t size, double* partials) {
  constexpr int kCount = kVector<Scalar>;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kNormChunk, end = min(begin + kNormChunk, size);
  const int64_t vectors = (end - begin) / kCount;
  double sum = 0.0;
  for (int64_t index = threadIdx.x; index < vectors; index += kThreads) {
    float loaded[kCount];
    load<kCount>(values + begin + index * kCount, loaded);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum += static_cast<double>(loaded[i]) * static_cast<double>(loaded[i]);
    }
  }
  for (int64_t at = begin + vectors * kCount + threadIdx.x; at < end; at += kThreads) {
    const auto value = static_cast<double>(to_float(values[at]));
    sum += value * value;
  }
  const double total = block_sum(sum);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = total;
  }
}

__global__ void add_partials(const double* partials, int64_t count, double* sum) {
  double own = 0.0;
  for (int64_t index = threadIdx.x; index < count; index += kThreads) {
    own += partials[index];
  }
  const double total = block_sum(own);
  if (threadIdx.x == 0) {
    *sum = total;
  }
}

__global__ void clip_scale(const double* squared_norm, const float* losses, int64_t num_losses, double* scalars) {
  double not_finite = 0.0;
  for (int64_t index = threadIdx.x; index < num_losses; index += kThreads) {
    not_finite += isfinite(losses[index]) ? 0.0 : 1.0;
  }
  const double count = block_sum(not_finite);
  if (threadIdx.x != 0) {
    return;
  }
  const double norm = sqrt(*squared_norm), max_norm = scalars[AdamWScalar::kMaxGradientNorm];
  const double scale = max_norm > 0.0 ? min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  scalars[AdamWScalar::kGradientScale] = isfinite(norm) && count == 0.0 ? scale : nan("");
}

}  // namespace

cudaError_t launch_adamw_update(Element gradient_element, const AdamWPointers& arrays, const double* scalars, int64_t size,
                                cudaStream_t stream) {
  if (gradient_element == Element::kFloat16) {
    return cudaErrorInvalidValue;
  }
  const int64_t threads = size / kUpdateVector + size % kUpdateVector;
  const auto kernel = gradient_element == Element::kFloat32 ? update<float> : update<__nv_bfloat16>;
  launch_kernel(kernel, blocks_for(threads, kThreads, kMostBlocks), kThreads, stream, arrays, scalars, size);
  return cudaGetLastError();
}

int64_t norm_chunks(int64_t size) { return (size + kNormChunk - 1) / kNormChunk; }

cudaError_t launch_norm_partials(Element element, const void* values, int64_t size, double* partials, cudaStream_t stream) {
  if (element == Element::kFloat16) {
    return cudaErrorInvalidValue;
  }
  const auto blocks = static_cast<unsigned>(norm_chunks(size));
  if (element == Element::kFloat32) {
    launch_kernel(sum_squares<float>, blocks, kThreads, stream, static_cast<const float*>(values), size, partials);
  } else {
    launch_kernel(sum_squares<__nv_bfloat16>, blocks, kThreads, stream, static_cast<const __nv_bfloat16*>(values), size, partials);
  }
  return cudaGetLastError();
}

cudaError_t launch_add_partials(const double* partials, int64_t count, double* sum, cudaStream_t stream) {
  launch_kernel(add_partials, 1, kThreads, stream, partials, count, sum);
  return cudaGetLastError();
}

cudaError_t launch_clip_scale(const double* squared_norm, const float* losses, int64_t num_losses, double* scalars, cudaStream_t stream) {
  launch_kernel(clip_scale, 1, kThreads, stream, squared_norm, losses, num_losses, scalars);
  return cudaGetLastError();
}

}  // namespace darkroom
