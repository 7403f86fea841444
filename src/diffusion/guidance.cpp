#include "darkroom/diffusion/guidance.h"

#include <utility>

namespace darkroom {

Denoiser guided_denoiser(ConditionalDenoiser network, torch::Tensor negative_states_ntw, torch::Tensor positive_states_ntw,
                         double guidance_scale) {
  if (!guidance_is_active(guidance_scale)) {
    return [network = std::move(network), states = std::move(positive_states_ntw)](
               const torch::Tensor& noisy, const torch::Tensor& timesteps_n) { return network(noisy, timesteps_n, states); };
  }
  torch::Tensor states = torch::cat({negative_states_ntw, positive_states_ntw});
  return [network = std::move(network), states = std::move(states), guidance_scale](const torch::Tensor& noisy,
                                                                                    const torch::Tensor& timesteps_n) {
    const std::vector<torch::Tensor> branches =
        network(torch::cat({noisy, noisy}), torch::cat({timesteps_n, timesteps_n}), states).chunk(2);
    return branches[0] + guidance_scale * (branches[1] - branches[0]);
  };
}

}  // namespace darkroom
