#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/random.h"
#include "darkroom/optim/objective.h"

namespace darkroom {

/// A small conditional denoiser with every kind of parameter: convolution, norm, linear, embedding of the timestep.
struct ToyNetwork : torch::nn::Module {
  ToyNetwork() {
    torch::manual_seed(7);
    in = register_module("in", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3).padding(1)));
    norm = register_module("norm", torch::nn::GroupNorm(2, 6));
    text = register_module("text", torch::nn::Linear(5, 6));
    out = register_module("out", torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 4, 3).padding(1)));
  }
  torch::Tensor forward(const torch::Tensor& noisy, const torch::Tensor& timesteps_n, const torch::Tensor& states) {
    const torch::Tensor bias = text->forward(states.mean(1)) + timesteps_n.view({-1, 1}) / 1000.0;
    return out->forward(torch::silu(norm->forward(in->forward(noisy)) + bias.view({-1, 6, 1, 1})));
  }
  ConditionalDenoiser denoiser() {
    return [this](const torch::Tensor& noisy, const torch::Tensor& timesteps_n, const torch::Tensor& states) {
      return forward(noisy, timesteps_n, states);
    };
  }

  torch::nn::Conv2d in{nullptr};
  torch::nn::GroupNorm norm{nullptr};
  torch::nn::Linear text{nullptr};
  torch::nn::Conv2d out{nullptr};
};

/// Samples with keys "first", "first + 1", ... whose latents and states depend on the key alone.
inline DiffusionBatch toy_batch(const std::vector<int>& keys, uint32_t epoch = 0) {
  DiffusionBatch batch;
  std::vector<torch::Tensor> latents;
  std::vector<torch::Tensor> states;
  for (const int key : keys) {
    batch.samples.push_back({.epoch = epoch, .key_hash = hash_key(std::to_string(key))});
    latents.push_back(torch::linspace(-1.0, 1.0 + key, 4 * 4 * 4).view({1, 4, 4, 4}));
    states.push_back(torch::linspace(0.0, 1.0 / (1 + key), 3 * 5).view({1, 3, 5}));
  }
  batch.latents_nchw = torch::cat(latents);
  batch.states_ntw = torch::cat(states);
  return batch;
}

inline torch::Tensor toy_empty_states() { return torch::full({3, 5}, -7.0F); }

}  // namespace darkroom
