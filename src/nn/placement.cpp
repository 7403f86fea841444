#include "darkroom/nn/placement.h"

namespace darkroom {

void place_network(torch::nn::Module& network, const torch::Device& device, torch::ScalarType type) {
  constexpr int64_t kConvolutionDimensions = 4;
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : network.parameters()) {
    const bool is_convolution = parameter.dim() == kConvolutionDimensions;
    const auto layout = is_convolution && !device.is_cpu() ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    parameter.set_data(parameter.detach().to(device, type).contiguous(layout));
  }
}

}  // namespace darkroom
