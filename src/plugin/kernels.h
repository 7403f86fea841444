#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// The plugin's kernels behind plain pointers: .cu files know nothing of torch. All pointers are to device memory on the current device,
// everything is asked of `stream`, nothing waits, and every launch returns cudaGetLastError(). All sums have a fixed order (no atomic
// operations), so that the same inputs give the same bits.

namespace darkroom {

/// Type of the elements of a kernel's large arrays; sums are float32 or double in any case.
enum class Element { kFloat32, kFloat16, kBFloat16 };

/// x as N samples of P pixels of C channels, channels last in memory; C channels in G groups. x, y and their gradients start at multiples
/// of 16 bytes where C is a multiple of 8 (float16, bfloat16) or 4 (float32).
struct GroupNormShape {
  Element element;
  bool with_silu;
  int64_t num_samples;
  int64_t num_pixels;
  int64_t num_channels;
  int64_t num_groups;
  float eps;
};

/// Chunks of pixels over which a sample's sums are split: the partial arrays hold as many.
int64_t group_norm_chunks(const GroupNormShape& shape);

/// Arrays of launch_group_norm. weight and bias have x's type.
struct GroupNormArrays {
  const void* x;
  const void* weight;
  const void* bias;
  void* y;
  float* mean;      // [N, G], written.
  float* rstd;      // [N, G], written.
  float* partials;  // [2, N, chunks, C], room to work in.
  float* sums;      // [2, N, C], room to work in.
};

/// y = [silu] ((x - mean) * rstd * weight + bias). Moves two reads and one write of x.
cudaError_t launch_group_norm(const GroupNormShape& shape, const GroupNormArrays& arrays, cudaStream_t stream);

/// Arrays of launch_group_norm_backward: all gradients have x's type.
struct GroupNormGradientArrays {
  const void* grad_y;
  const void* x;
  const void* weight;
  const void* bias;
  const float* mean;
  const float* rstd;
  void* grad_x;
  void* grad_weight;
  void* grad_bias;
  float* partials;    // As above.
  float* sums;        // As above.
  float* group_sums;  // [2, N, G], room to work in.
};

/// Gradients of launch_group_norm's x, weight and bias. Moves two reads of x and of grad_y and one write of x.
cudaError_t launch_group_norm_backward(const GroupNormShape& shape, const GroupNormGradientArrays& arrays, cudaStream_t stream);

/// y[r, d] = x[r, d] * gelu(x[r, width + d]). Moves 3 elements a value.
cudaError_t launch_geglu(Element element, const void* x, void* y, int64_t num_rows, int64_t width, cudaStream_t stream);
/// Moves 5 elements a value.
cudaError_t launch_geglu_backward(Element element, const void* grad_y, const void* x, void* grad_x, int64_t num_rows, int64_t width,
                                  cudaStream_t stream);

/// noisy = a * clean + s * noise; velocity, unless null, = a * noise - s * clean; scales: (a, s) a sample.
cudaError_t launch_add_noise(const float* clean, const float* noise, const float* scales, float* noisy, float* velocity,
                             int64_t num_samples, int64_t row, cudaStream_t stream);

/// out[n, i] = draw i of sample n; coordinates: (epoch, key hash) a sample.
cudaError_t launch_counter_normal(float* out, uint64_t seed, uint8_t purpose, const int64_t* coordinates, int64_t num_samples, int64_t row,
                                  cudaStream_t stream);

/// Chunks of ops' kNormChunk elements: `partials` holds as many doubles. The launches are ops' norm_partials of at least one element, and
/// add_norm_partials of `count` of them. float16 is refused: training has no gradients in it.
int64_t norm_chunks(int64_t size);
cudaError_t launch_norm_partials(Element element, const void* values, int64_t size, double* partials, cudaStream_t stream);
cudaError_t launch_add_partials(const double* partials, int64_t count, double* sum, cudaStream_t stream);

/// ops' clip_scale; places in `scalars` by AdamWScalar.
cudaError_t launch_clip_scale(const double* squared_norm, const float* losses, int64_t num_losses, double* scalars, cudaStream_t stream);

/// ops' adamw_update; `ema` and `compute` (bfloat16) may be null. Gradients in float16 are refused.
struct AdamWPointers {
  float* weights;
  const void* gradients;
  float* first_moment;
  float* second_moment;
  float* ema;
  void* compute;
};
cudaError_t launch_adamw_update(Element gradient_element, const AdamWPointers& arrays, const double* scalars, int64_t size,
                                cudaStream_t stream);

}  // namespace darkroom
