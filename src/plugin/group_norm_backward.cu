#include "group_norm.cuh"

// With xhat = (x - mean) * rstd, z = xhat * weight + bias, y = z or silu(z), and dz the gradient of z:
//   bias: sum dz;  weight: sum dz * xhat;
//   x: rstd * (dz * weight - (S1 + xhat * S2) / m), where a group's S1 = sum dz * weight, S2 = sum dz * weight * xhat over its m elements.

namespace darkroom {
namespace {

// What a thread knows of its channels.
template <int kCount>
struct ChannelConstants {
  float weight[kCount], bias[kCount], mean[kCount], rstd[kCount];
};

template <typename Scalar, int kCount>
__device__ ChannelConstants<kCount> constants_of(const GroupNormShape& shape, const GroupNormPlace& place, const Scalar* weight,
                                                 const Scalar* bias, const float* mean, const float* rstd) {
  ChannelConstants<kCount> constants;
  load<kCount>(weight + place.channel, constants.weight);
  load<kCount>(bias + place.channel, constants.bias);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int64_t group = place.sample * shape.num_groups + group_of(shape, place.channel + i);
    constants.mean[i] = mean[group];
    constants.rstd[i] = rstd[group];
  }
  return constants;
}

// The gradient of z from that of y.
template <bool kSilu>
__device__ float through_silu(float grad, float z) {
  if (!kSilu) {
    return grad;
  }
  const float gate = sigmoid(z);
  return grad * gate * (1.0F + z * (1.0F - gate));
}

template <typename Scalar, int kCount, bool kSilu>
__global__ void __launch_bounds__(kGroupNormThreads)
    sum_gradients(GroupNormShape shape, GroupNormMapping mapping, const Scalar* grad_y, const Scalar* x, const Scalar* weight,
                  const Scalar* bias, const float* mean, const float* rstd, float* partials) {
  DARKROOM_SHARED_ARRAY(float, shared, kGroupNormThreads * 2 * kCount);
  const GroupNormPlace place = place_of<kCount>(shape, mapping);
  float sum[kCount] = {}, with_xhat[kCount] = {};
  if (place.is_active) {
    const auto constants = constants_of<Scalar, kCount>(shape, place, weight, bias, mean, rstd);
    const int64_t start = place.sample * shape.num_pixels * shape.num_channels + place.channel;
    for (int64_t pixel = place.first_pixel; pixel < place.end_pixel; pixel += mapping.rows) {
      float values[kCount], grads[kCount];
      load<kCount>(x + start + pixel * shape.num_channels, values);
      load<kCount>(grad_y + start + pixel * shape.num_channels, grads);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float xhat = (values[i] - constants.mean[i]) * constants.rstd[i];
        const float grad_z = through_silu<kSilu>(grads[i], xhat * constants.weight[i] + constants.bias[i]);
        sum[i] += grad_z;
        with_xhat[i] += grad_z * xhat;
      }
    }
  }
  write_partials<kCount>(shape, mapping, place, sum, with_xhat, shared, partials);
}

// group_sums [2, N, G]: S1 and S2.
template <typename Scalar>
__global__ void add_channels(GroupNormShape shape, const Scalar* weight, const float* sums, float* group_sums) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t count = shape.num_samples * shape.num_groups;
  if (index >= 2 * count) {
    return;
  }
  const int64_t half = index / count, sample = index % count / shape.num_groups, group = index % shape.num_groups;
  const int64_t group_channels = shape.num_channels / shape.num_groups;
  const float* first = sums + (half * shape.num_samples + sample) * shape.num_channels;
  float sum = 0.0F;
  for (int64_t channel = group * group_channels; channel < (group + 1) * group_channels; ++channel) {
    sum += to_float(weight[channel]) * first[channel];
  }
  group_sums[index] = sum;
}

template <typename Scalar>
__global__ void add_samples(GroupNormShape shape, const float* sums, Scalar* grad_weight, Scalar* grad_bias) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= shape.num_channels) {
    return;
  }
  float bias_sum = 0.0F, weight_sum = 0.0F;
  for (int64_t sample = 0; sample < shape.num_samples; ++sample) {
    bias_sum += sums[sample * shape.num_channels + channel];
    weight_sum += sums[(shape.num_samples + sample) * shape.num_channels + channel];
  }
  grad_bias[channel] = from_float<Scalar>(bias_sum);
  grad_weight[channel] = from_float<Scalar>(weight_sum);
}

template <typename Scalar, int kCount, bool kSilu>
__global__ void __launch_bounds__(kGroupNormThreads)
    write_gradient(GroupNormShape shape, GroupNormMapping mapping, const Scalar* grad_y, const Scalar* x, const Scalar* weight,
                   const Scalar* bias, const float* mean, const float* rstd, const float* group_sums, Scalar* grad_x) {
  const GroupNormPlace place = place_of<kCount>(shape, mapping);
  if (!place.is_active) {
    return;
  }
  const auto constants = constants_of<Scalar, kCount>(shape, place, weight, bias, mean, rstd);
  const int64_t group_channels = shape.num_channels / shape.num_groups;
  const float share = 1.0F / static_cast<float>(group_channels * shape.num_pixels);
  float first_mean[kCount], second_mean[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int64_t group = place.sample * shape.num_groups + group_of(shape, place.channel + i);
    first_mean[i] = group_sums[group] * share;
    second_mean[i] = group_sums[shape.num_samples * shape.num_groups + group] * share;
  }
  const int64_t start = place.sample * shape.num_pixels * shape.num_channels + place.channel;
  for (int64_t pixel = place.first_pixel; pixel < place.end_pixel; pixel += mapping.rows) {
    float values[kCount], grads[kCount];
    load<kCount>(x + start + pixel * shape.num_channels, values);
    load<kCount>(grad_y + start + pixel * shape.num_channels, grads);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float xhat = (values[i] - constants.mean[i]) * constants.rstd[i];
      const float grad_z = through_silu<kSilu>(grads[i], xhat * constants.weight[i] + constants.bias[i]);
      values[i] = constants.rstd[i] * (grad_z * constants.weight[i] - first_mean[i] - xhat * second_mean[i]);
    }
    store<kCount>(grad_x + start + pixel * shape.num_channels, values);
  }
}

template <typename Scalar, int kCount, bool kSilu>
void launch(const GroupNormShape& shape, const GroupNormGradientArrays& arrays, cudaStream_t stream) {
  const GroupNormMapping mapping = mapping_of(shape, kCount);
  const int64_t chunks = group_norm_chunks(shape);
  const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(shape.num_samples), static_cast<unsigned>(mapping.tiles));
  const auto *grad_y = static_cast<const Scalar*>(arrays.grad_y), *x = static_cast<const Scalar*>(arrays.x);
  const auto *weight = static_cast<const Scalar*>(arrays.weight), *bias = static_cast<const Scalar*>(arrays.bias);
  launch_kernel(sum_gradients<Scalar, kCount, kSilu>, grid, kGroupNormThreads, stream, shape, mapping, grad_y, x, weight, bias, arrays.mean,
                arrays.rstd, arrays.partials);
  launch_add_chunks(shape, arrays.partials, arrays.sums, stream);
  const int64_t group_sums = 2 * shape.num_samples * shape.num_groups;
  launch_kernel(add_channels<Scalar>, blocks_for(group_sums, kSmallThreads, kMostSmallBlocks), kSmallThreads, stream, shape, weight,
                arrays.sums, arrays.group_sums);
  launch_kernel(add_samples<Scalar>, blocks_for(shape.num_channels, kSmallThreads, kMostSmallBlocks), kSmallThreads, stream, shape,
                arrays.sums, static_cast<Scalar*>(arrays.grad_weight), static_cast<Scalar*>(arrays.grad_bias));
  launch_kernel(write_gradient<Scalar, kCount, kSilu>, grid, kGroupNormThreads, stream, shape, mapping, grad_y, x, weight, bias,
                arrays.mean, arrays.rstd, arrays.group_sums, static_cast<Scalar*>(arrays.grad_x));
}

template <typename Scalar>
void launch_for(const GroupNormShape& shape, const GroupNormGradientArrays& arrays, cudaStream_t stream) {
  constexpr int kWide = kVector<Scalar>;
  if (takes_vectors(shape)) {
    (shape.with_silu ? launch<Scalar, kWide, true> : launch<Scalar, kWide, false>)(shape, arrays, stream);
  } else {
    (shape.with_silu ? launch<Scalar, 1, true> : launch<Scalar, 1, false>)(shape, arrays, stream);
  }
}

}  // namespace

cudaError_t launch_group_norm_backward(const GroupNormShape& shape, const GroupNormGradientArrays& arrays, cudaStream_t stream) {
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
