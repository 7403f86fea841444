#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>

#include "darkroom/core/check.h"
#include "darkroom/nn/placement.h"
#include "darkroom/nn/unet.h"

namespace darkroom {

/// A U-Net as a function of noisy latents (N, C, h, w), timesteps (N) and text states (N, T, W), for one sampling run: it is asked with the
/// same states, where it lies, in every call, and works out once what its cross-attentions make of them. The same bits as forward().
/// REQUIRES: its weights stay as they are. Thread safety: none.
inline std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&)> for_one_run(
    UNet2DConditionModel unet) {
  struct Known {
    torch::Tensor given;
    TextStates states;
  };
  const torch::ScalarType type = place_of(*unet).type;
  // Shared by the copies of the function.
  const auto known = std::make_shared<std::optional<Known>>();
  return [unet = std::move(unet), type, known](const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n,
                                               const torch::Tensor& states_ntw) mutable {
    if (!known->has_value()) {
      known->emplace(Known{states_ntw, TextStates(states_ntw.to(type), TextStates::Memory::kKeysAndValues)});
    }
    DARKROOM_CHECK((*known)->given.is_same(states_ntw), "a sampling run asks its network with other text states than it began with");
    return unet->forward_known(noisy_nchw, timesteps_n, (*known)->states);
  };
}

}  // namespace darkroom
