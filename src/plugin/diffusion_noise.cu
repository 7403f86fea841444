#include "darkroom/core/counter_draw.h"
#include "kernel_launch.cuh"
#include "kernels.h"

// Compiled without contraction into fused multiply-adds: the draws and the sums have the CPU's bits.

namespace darkroom {
namespace {

constexpr int kThreads = 256;

__global__ void add_noise(const float* clean, const float* noise, const float* scales, float* noisy, float* velocity, int64_t total,
                          int64_t row) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; index < total; index += stride) {
    const int64_t sample = index / row;
    const float signal_scale = scales[2 * sample], noise_scale = scales[2 * sample + 1];
    noisy[index] = signal_scale * clean[index] + noise_scale * noise[index];
    if (velocity != nullptr) {
      velocity[index] = signal_scale * noise[index] - noise_scale * clean[index];
    }
  }
}

// One thread a block of four draws.
__global__ void counter_normal(float* out, uint64_t seed, uint32_t purpose, const int64_t* coordinates, int64_t blocks_a_row, int64_t total,
                               int64_t row) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; index < total; index += stride) {
    const int64_t sample = index / blocks_a_row, first = index % blocks_a_row * 4;
    const uint32_t stream = (purpose << 24) | static_cast<uint32_t>(coordinates[2 * sample]);
    const PhiloxBlock block = draw_block(seed, stream, static_cast<uint64_t>(coordinates[2 * sample + 1]), static_cast<uint64_t>(first));
    const NormalPair low = normal_pair(block.words[0], block.words[1]), high = normal_pair(block.words[2], block.words[3]);
    const float draws[4] = {low.even, low.odd, high.even, high.odd};
    for (int64_t i = 0; i < 4 && first + i < row; ++i) {
      out[sample * row + first + i] = draws[i];
    }
  }
}

}  // namespace

cudaError_t launch_add_noise(const float* clean, const float* noise, const float* scales, float* noisy, float* velocity,
                             int64_t num_samples, int64_t row, cudaStream_t stream) {
  const int64_t total = num_samples * row;
  launch_kernel(add_noise, blocks_for(total, kThreads, kMostBlocks), kThreads, stream, clean, noise, scales, noisy, velocity, total, row);
  return cudaGetLastError();
}

cudaError_t launch_counter_normal(float* out, uint64_t seed, uint8_t purpose, const int64_t* coordinates, int64_t num_samples, int64_t row,
                                  cudaStream_t stream) {
  const int64_t blocks_a_row = (row + 3) / 4, total = num_samples * blocks_a_row;
  launch_kernel(counter_normal, blocks_for(total, kThreads, kMostBlocks), kThreads, stream, out, seed, purpose, coordinates, blocks_a_row,
                total, row);
  return cudaGetLastError();
}

}  // namespace darkroom
