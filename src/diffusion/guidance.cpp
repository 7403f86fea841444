#include "darkroom/diffusion/guidance.h"

#include <cmath>
#include <utility>

namespace darkroom {

namespace {

torch::Tensor deviation_of_pictures(const torch::Tensor& output_nchw) {
  return output_nchw.std(at::IntArrayRef{1, 2, 3}, /*unbiased=*/true, /*keepdim=*/true);
}

// A network in half precision loses digits once; what is done with its output shall not lose more.
torch::Tensor in_full(const torch::Tensor& output) { return output.to(torch::promote_types(output.scalar_type(), torch::kFloat32)); }

}  // namespace

Status Guidance::validate() const {
  if (!std::isfinite(scale)) {
    return Status::invalid_argument("the guidance scale must be a finite number, got:", scale);
  }
  if (!(rescale >= 0.0 && rescale <= 1.0)) {
    return Status::invalid_argument("the guidance rescale must be between 0 and 1, got:", rescale);
  }
  return Status::ok();
}

torch::Tensor guided_output(const torch::Tensor& negative_nchw, const torch::Tensor& positive_nchw, const Guidance& guidance) {
  torch::Tensor guided = negative_nchw + guidance.scale * (positive_nchw - negative_nchw);
  if (guidance.rescale > 0.0) {
    const torch::Tensor rescaled = guided * (deviation_of_pictures(positive_nchw) / deviation_of_pictures(guided));
    guided = guidance.rescale * rescaled + (1.0 - guidance.rescale) * guided;
  }
  return guided;
}

Denoiser guided_denoiser(ConditionalDenoiser network, torch::Tensor negative_states_ntw, torch::Tensor positive_states_ntw,
                         const Guidance& guidance) {
  if (!guidance.is_active()) {
    return [network = std::move(network), states = std::move(positive_states_ntw)](
               const torch::Tensor& noisy, const torch::Tensor& timesteps_n) { return in_full(network(noisy, timesteps_n, states)); };
  }
  torch::Tensor states = torch::cat({negative_states_ntw, positive_states_ntw});
  return
      [network = std::move(network), states = std::move(states), guidance](const torch::Tensor& noisy, const torch::Tensor& timesteps_n) {
        const std::vector<torch::Tensor> branches =
            in_full(network(torch::cat({noisy, noisy}), torch::cat({timesteps_n, timesteps_n}), states)).chunk(2);
        return guided_output(branches[0], branches[1], guidance);
      };
}

}  // namespace darkroom
