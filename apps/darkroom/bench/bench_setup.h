#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "bench.h"
#include "darkroom/diffusion/sampler.h"
#include "darkroom/nn/presets.h"
#include "darkroom/nn/unet.h"

namespace darkroom {

inline constexpr int64_t kNumTokens = 77;  ///< Of a caption.

/// Where a benchmark runs, from its options.
struct BenchPlace {
  torch::Device device = torch::kCPU;
  torch::ScalarType type = torch::kFloat32;
  bool replays = false;  ///< On a GPU: replay a recorded graph.
};

/// Applies the options that hold for the whole process (threads, no TF32). Errors: kInvalidArgument, kUnavailable.
Result<BenchPlace> set_up_place(const BenchOptions& options);

/// Standard normal float32 on the place's device, the same numbers on every device.
torch::Tensor random_normal(at::IntArrayRef shape, uint64_t seed, const BenchPlace& place);

/// Pixels of a side.
int64_t picture_side(const BenchOptions& options, const ModelPreset& preset);

/// A preset's U-Net with random weights, still on the CPU in float32, and one batch of synthetic inputs in its place.
struct UNetSetup {
  UNet2DConditionModel unet{nullptr};
  SchedulerConfig scheduler;
  int64_t resolution = 0;  ///< Pixels.
  torch::Tensor latents_nchw;
  torch::Tensor states_ntw;
  torch::Tensor timesteps_n;
};

Result<UNetSetup> set_up_unet(const BenchOptions& options, const BenchPlace& place);

/// Multiply-adds of the U-Net's forward pass on the batch, where it is placed by now.
int64_t forward_multiply_adds(UNetSetup& setup);

/// The U-Net's output for the first sample of the batch alone, (1, C, h, w).
torch::Tensor first_sample(UNetSetup& setup);

/// Packs the U-Net, which is where it runs by now, if `options` and the place are for it; the first sample must come out as before, within
/// roundings of the type. Returns whether it is packed. Errors: kInternal.
Result<bool> pack_unet(UNetSetup& setup, const BenchOptions& options);

/// Whether a sample's output in a batch is its output alone, within roundings of the type: what is timed computes what it should.
/// Errors: kInternal.
Status check_rows_alone(const torch::Tensor& in_batch, const torch::Tensor& alone);

/// Adds what the options say to figures.
nlohmann::json describe(nlohmann::json figures, const BenchOptions& options, const BenchPlace& place, int64_t resolution,
                        int64_t parameters);

}  // namespace darkroom
