#include <algorithm>

#include "group_norm.cuh"

namespace darkroom {
namespace {

constexpr int64_t kMostChunks = 64;
constexpr int64_t kPixelsAThread = 8;  // So many pixels a thread before the pixels are split further.

constexpr int vector_of(Element element) { return element == Element::kFloat32 ? kVector<float> : kVector<__half>; }
static_assert(kVector<__half> == kVector<__nv_bfloat16>);

}  // namespace

bool takes_vectors(const GroupNormShape& shape) { return shape.num_channels % vector_of(shape.element) == 0; }

GroupNormMapping mapping_of(const GroupNormShape& shape, int vector) {
  const int64_t vectors = shape.num_channels / vector;
  GroupNormMapping mapping;
  mapping.tiles = static_cast<int>((vectors + kGroupNormThreads - 1) / kGroupNormThreads);
  mapping.columns = static_cast<int>((vectors + mapping.tiles - 1) / mapping.tiles);
  mapping.rows = kGroupNormThreads / mapping.columns;
  const int64_t chunks = group_norm_chunks(shape);
  mapping.chunk_pixels = (shape.num_pixels + chunks - 1) / chunks;
  return mapping;
}

int64_t group_norm_chunks(const GroupNormShape& shape) {
  const int64_t vector = takes_vectors(shape) ? vector_of(shape.element) : 1;
  const int64_t columns = std::min<int64_t>(shape.num_channels / vector, kGroupNormThreads);
  const int64_t pixels_a_block = kGroupNormThreads / columns * kPixelsAThread;
  return std::clamp<int64_t>((shape.num_pixels + pixels_a_block - 1) / pixels_a_block, 1, kMostChunks);
}

namespace {

// Sums of x - shift and of its square a channel, with the sample's first pixel as the shift: no cancellation where the mean is large.
template <typename Scalar, int kCount>
__global__ void __launch_bounds__(kGroupNormThreads)
    sum_channels(GroupNormShape shape, GroupNormMapping mapping, const Scalar* x, float* partials) {
  DARKROOM_SHARED_ARRAY(float, shared, kGroupNormThreads * 2 * kCount);
  const GroupNormPlace place = place_of<kCount>(shape, mapping);
  float sum[kCount] = {}, squares[kCount] = {};
  if (place.is_active) {
    const Scalar* sample = x + place.sample * shape.num_pixels * shape.num_channels + place.channel;
    float shift[kCount];
    load<kCount>(sample, shift);
    for (int64_t pixel = place.first_pixel; pixel < place.end_pixel; pixel += mapping.rows) {
      float values[kCount];
      load<kCount>(sample + pixel * shape.num_channels, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float shifted = values[i] - shift[i];
        sum[i] += shifted;
        squares[i] += shifted * shifted;
      }
    }
  }
  write_partials<kCount>(shape, mapping, place, sum, squares, shared, partials);
}

__global__ void add_chunks(GroupNormShape shape, int64_t chunks, const float* partials, float* sums) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t count = shape.num_samples * shape.num_channels;
  if (index >= 2 * count) {
    return;
  }
  const int64_t half = index / count, sample = index % count / shape.num_channels, channel = index % shape.num_channels;
  const float* first = partials + half * count * chunks + sample * chunks * shape.num_channels + channel;
  float sum = 0.0F;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    sum += first[chunk * shape.num_channels];
  }
  sums[index] = sum;
}

// One thread a group: joins its channels in order, in double.
template <typename Scalar>
__global__ void finish_statistics(GroupNormShape shape, const Scalar* x, const float* sums, float* mean, float* rstd) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= shape.num_samples * shape.num_groups) {
    return;
  }
  const int64_t sample = index / shape.num_groups, group_channels = shape.num_channels / shape.num_groups;
  const int64_t first_channel = index % shape.num_groups * group_channels;
  const auto pixels = static_cast<double>(shape.num_pixels);
  double sum_of_means = 0.0, sum_of_squared_means = 0.0, squares = 0.0;
  double origin = 0.0;  // Means are summed relative to the first channel's.
  for (int64_t channel = first_channel; channel < first_channel + group_channels; ++channel) {
    const double sum = sums[sample * shape.num_channels + channel];
    const double shifted_squares = sums[(shape.num_samples + sample) * shape.num_channels + channel];
    const double channel_mean = to_float(x[sample * shape.num_pixels * shape.num_channels + channel]) + sum / pixels;
    origin = channel == first_channel ? channel_mean : origin;
    squares += shifted_squares - sum * sum / pixels;
    sum_of_means += channel_mean - origin;
    sum_of_squared_means += (channel_mean - origin) * (channel_mean - origin);
  }
  const auto channels = static_cast<double>(group_channels);
  const double offset = sum_of_means / channels;
  const double variance = (squares / pixels + sum_of_squared_means) / channels - offset * offset;
  mean[index] = static_cast<float>(origin + offset);
  const double at_least_zero = variance < 0.0 ? 0.0 : variance;  // NaN stays, which max() would make 0.
  rstd[index] = static_cast<float>(1.0 / sqrt(at_least_zero + static_cast<double>(shape.eps)));
}

template <typename Scalar, int kCount, bool kSilu>
__global__ void __launch_bounds__(kGroupNormThreads)
    normalise(GroupNormShape shape, GroupNormMapping mapping, const Scalar* x, const Scalar* weight, const Scalar* bias, const float* mean,
              const float* rstd, Scalar* y) {
  const GroupNormPlace place = place_of<kCount>(shape, mapping);
  if (!place.is_active) {
    return;
  }
  float scale[kCount], shift[kCount], channel_mean[kCount];
  load<kCount>(weight + place.channel, scale);
  load<kCount>(bias + place.channel, shift);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int64_t group = place.sample * shape.num_groups + group_of(shape, place.channel + i);
    channel_mean[i] = mean[group];
    scale[i] *= rstd[group];
  }
  const int64_t start = place.sample * shape.num_pixels * shape.num_channels + place.channel;
  for (int64_t pixel = place.first_pixel; pixel < place.end_pixel; pixel += mapping.rows) {
    float values[kCount];
    load<kCount>(x + start + pixel * shape.num_channels, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float normed = (values[i] - channel_mean[i]) * scale[i] + shift[i];
      values[i] = kSilu ? normed * sigmoid(normed) : normed;
    }
    store<kCount>(y + start + pixel * shape.num_channels, values);
  }
}

template <typename Scalar, int kCount>
void launch(const GroupNormShape& shape, const GroupNormArrays& arrays, cudaStream_t stream) {
  const GroupNormMapping mapping = mapping_of(shape, kCount);
  const dim3 grid(static_cast<unsigned>(group_norm_chunks(shape)), static_cast<unsigned>(shape.num_samples),
                  static_cast<unsigned>(mapping.tiles));
  const auto *x = static_cast<const Scalar*>(arrays.x), *weight = static_cast<const Scalar*>(arrays.weight),
             *bias = static_cast<const Scalar*>(arrays.bias);
  launch_kernel(sum_channels<Scalar, kCount>, grid, kGroupNormThreads, stream, shape, mapping, x, arrays.partials);
  launch_add_chunks(shape, arrays.partials, arrays.sums, stream);
  const int64_t groups = shape.num_samples * shape.num_groups;
  launch_kernel(finish_statistics<Scalar>, blocks_for(groups, kSmallThreads, kMostSmallBlocks), kSmallThreads, stream, shape, x,
                arrays.sums, arrays.mean, arrays.rstd);
  const auto apply = shape.with_silu ? normalise<Scalar, kCount, true> : normalise<Scalar, kCount, false>;
  launch_kernel(apply, grid, kGroupNormThreads, stream, shape, mapping, x, weight, bias, arrays.mean, arrays.rstd,
                static_cast<Scalar*>(arrays.y));
}

template <typename Scalar>
void launch_for(const GroupNormShape& shape, const GroupNormArrays& arrays, cudaStream_t stream) {
  (takes_vectors(shape) ? launch<Scalar, kVector<Scalar>> : launch<Scalar, 1>)(shape, arrays, stream);
}

}  // namespace

void launch_add_chunks(const GroupNormShape& shape, const float* partials, float* sums, cudaStream_t stream) {
  const int64_t count = 2 * shape.num_samples * shape.num_channels;
  launch_kernel(add_chunks, blocks_for(count, kSmallThreads, kMostSmallBlocks), kSmallThreads, stream, shape, group_norm_chunks(shape),
                partials, sums);
}

cudaError_t launch_group_norm(const GroupNormShape& shape, const GroupNormArrays& arrays, cudaStream_t stream) {
  if (shape.element == Element::kFloat32) {
    launch_for<float>(shape, arrays, stream);
  } else if (shape.element == Element::kFloat16) {
    launch_for<__half>(shape, arrays, stream);
  } else {
    launch_for<__nv_bfloat16>(shape, arrays, stream);
  }
  return cudaGetLastError();
}

}  // namespace darkroom
