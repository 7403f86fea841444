#include "darkroom/nn/packing.h"

#include "darkroom/nn/placement.h"
#include "layers.h"
#include "packed_products.h"

namespace darkroom {
namespace {

bool packing_helps(const NetworkPlace& place) {
  if (!place.device.is_cpu() || !at::hasMKLDNN() || !at::globalContext().userEnabledMkldnn()) {
    return false;
  }
  return place.type == torch::kFloat32 || (place.type == torch::kBFloat16 && has_packed_bfloat16());
}

// Biases and norms stay as they are, but not in a mapped file, which would stay mapped for their sake.
void take_out_of_file(torch::Tensor& parameter) {
  if (parameter.dim() == 1) {
    parameter.set_data(parameter.clone());
  }
}

}  // namespace

bool pack_network(torch::nn::Module& network) {
  if (!packing_helps(place_of(network))) {
    return false;
  }
  const torch::NoGradGuard no_grad;
  for (const auto& module : network.modules()) {
    if (auto* const linear = module->as<LinearImpl>()) {
      linear->pack();
    } else if (auto* const convolution = module->as<Conv2dImpl>()) {
      convolution->pack();
    }
  }
  for (torch::Tensor& parameter : network.parameters()) {
    take_out_of_file(parameter);
  }
  return true;
}

}  // namespace darkroom
