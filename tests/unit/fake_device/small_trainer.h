#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "darkroom/optim/adamw.h"
#include "darkroom/optim/ema.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/train_step.h"

namespace darkroom {

/// Convolutions and a linear layer, whose parameters have sizes that alignment pads.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl() {
    register_module("convolution", convolution);
    register_module("pointwise", pointwise);
    register_module("linear", linear);
  }
  torch::Tensor forward(const torch::Tensor& x) { return linear(pointwise(torch::silu(convolution(x))).mean({2, 3})); }
  torch::nn::Conv2d convolution{torch::nn::Conv2dOptions(3, 5, 3).padding(1)};
  torch::nn::Conv2d pointwise{torch::nn::Conv2dOptions(5, 5, 1)};  // Torch takes both of its layouts for contiguous.
  torch::nn::Linear linear{5, 2};
};
TORCH_MODULE(SmallNet);

inline SmallNet the_small_net() {
  torch::manual_seed(3);
  return SmallNet();
}

inline FlatParametersOptions like_gpu(const torch::Device& device, torch::ScalarType type) {
  return FlatParametersOptions::for_gpu(device, type);
}

inline TrainStepOptions step_options(int64_t micro_batch) {
  return {.micro_batch = micro_batch, .schedule = {.peak = 1e-2, .warmup_steps = 0}};
}

/// The small net with all that trains it.
struct Trainer {
  explicit Trainer(const FlatParametersOptions& options, const TrainStepOptions& of_step = step_options(4))
      : flat(*net, options), step(flat, adamw, &ema, of_step) {}

  torch::Tensor losses_of(const torch::Tensor& pictures_nchw) {
    return net(pictures_nchw.to(flat.options().compute_type)).to(torch::kFloat32).square().mean(1);
  }
  MicroBatchLosses losses(const torch::Tensor& batch) {
    return [this, batch](int64_t first, int64_t count) { return losses_of(batch.narrow(0, first, count)); };
  }
  torch::Tensor batch(int64_t number, int64_t size = 4) const {
    torch::manual_seed(static_cast<uint64_t>(number));
    return torch::randn({size, 3, 6, 6}).to(flat.options().device);
  }
  /// A batch whose samples also have a weight, which is drawn anew in every step.
  DeviceBatch device_batch(int64_t number, int64_t size = 8) {
    const torch::Tensor pictures = batch(number, size), weights_n = torch::rand({size}).to(flat.options().device);
    return {.size = size, .inputs = {pictures, weights_n}, .losses = [this](const std::vector<torch::Tensor>& inputs) {
              return losses_of(inputs[0]) * inputs[1];
            }};
  }

  SmallNet net = the_small_net();
  FlatParameters flat;
  AdamW adamw{flat, {}};
  Ema ema{flat, {}};
  TrainStep step;
};

}  // namespace darkroom
