#pragma once

#include <cstdint>

#include "kernels.h"
#include "vector_access.cuh"

namespace darkroom {

// One mapping of threads for all passes over x: a block covers `columns` vectors of channels of one sample and walks over one chunk of its
// pixels, `rows` pixels at a time; a thread keeps its channels. grid = (chunks, samples, tiles of columns).
struct GroupNormMapping {
  int columns;
  int rows;
  int tiles;
  int64_t chunk_pixels;
};

constexpr int kGroupNormThreads = 256;
constexpr int kSmallThreads = 64;                      // Of a block, where there are few threads in all.
constexpr int64_t kMostSmallBlocks = (1LL << 31) - 1;  // All that a grid can have: these threads do not walk on.

__device__ inline float sigmoid(float value) { return 1.0F / (1.0F + expf(-value)); }

/// A thread's place.
struct GroupNormPlace {
  int64_t sample;
  int64_t channel;      // First of the thread's.
  int64_t first_pixel;  // Of the thread in its chunk.
  int64_t end_pixel;    // Of the chunk.
  int row;
  bool is_active;
};

template <int kCount>
__device__ GroupNormPlace place_of(const GroupNormShape& shape, const GroupNormMapping& mapping) {
  GroupNormPlace place;
  const int column = static_cast<int>(threadIdx.x) % mapping.columns;
  place.row = static_cast<int>(threadIdx.x) / mapping.columns;
  place.sample = blockIdx.y;
  place.channel = (static_cast<int64_t>(blockIdx.z) * mapping.columns + column) * kCount;
  const int64_t chunk_start = static_cast<int64_t>(blockIdx.x) * mapping.chunk_pixels;
  place.first_pixel = chunk_start + place.row;
  place.end_pixel = min(chunk_start + mapping.chunk_pixels, shape.num_pixels);
  place.is_active = place.row < mapping.rows && place.channel < shape.num_channels;
  return place;
}

/// The group of a channel in its sample. Divisions of 32 bits: of 64 they take several times as many instructions.
__device__ inline int64_t group_of(const GroupNormShape& shape, int64_t channel) {
  const uint32_t group_channels = static_cast<uint32_t>(shape.num_channels) / static_cast<uint32_t>(shape.num_groups);
  return static_cast<uint32_t>(channel) / group_channels;
}

/// Adds two numbers a channel over the rows of a block, in the order of the rows, and writes them to partials [2, N, chunks, C].
/// `shared` holds 2 * kCount floats per thread: the first of all threads, then the second, ..., so that neighbours use other banks.
template <int kCount>
__device__ void write_partials(const GroupNormShape& shape, const GroupNormMapping& mapping, const GroupNormPlace& place,
                               const float (&first)[kCount], const float (&second)[kCount], float* shared, float* partials) {
  float* own = shared + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    own[i * kGroupNormThreads] = first[i];
    own[(kCount + i) * kGroupNormThreads] = second[i];
  }
  __syncthreads();
  if (place.row != 0 || !place.is_active) {
    return;
  }
  const int64_t second_half = shape.num_samples * gridDim.x * shape.num_channels;
  const int64_t at = (place.sample * gridDim.x + blockIdx.x) * shape.num_channels + place.channel;
  for (int i = 0; i < kCount; ++i) {
    float first_sum = 0.0F, second_sum = 0.0F;
    for (int row = 0; row < mapping.rows; ++row) {
      const float* values = own + row * mapping.columns;
      first_sum += values[i * kGroupNormThreads];
      second_sum += values[(kCount + i) * kGroupNormThreads];
    }
    partials[at + i] = first_sum;
    partials[second_half + at + i] = second_sum;
  }
}

/// sums [2, N, C]: what write_partials left, added over the chunks in order.
void launch_add_chunks(const GroupNormShape& shape, const float* partials, float* sums, cudaStream_t stream);

/// The mapping for vectors of `vector` channels.
GroupNormMapping mapping_of(const GroupNormShape& shape, int vector);
/// Whether vectors of 16 bytes fit the channels.
bool takes_vectors(const GroupNormShape& shape);

}  // namespace darkroom
